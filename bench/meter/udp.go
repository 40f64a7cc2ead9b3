package meter

import (
	"os"
	"strconv"
	"strings"
)

// UDPQueue is the number of bytes that wait in the sockets bound to a port,
// and whether there is any.
func UDPQueue(port int) (bytes int64, bound bool) {
	text, _ := os.ReadFile("/proc/net/udp")
	return udpQueue(string(text), port)
}

// udpQueue reads the table of proc_net_udp: local_address is in column 2,
// tx_queue:rx_queue in column 5, all in hexadecimal.
func udpQueue(table string, port int) (bytes int64, bound bool) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		_, local, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseInt(local, 16, 32); err != nil || int(n) != port {
			continue
		}
		_, waiting, _ := strings.Cut(fields[4], ":")
		n, _ := strconv.ParseInt(waiting, 16, 64)
		bytes, bound = bytes+n, true
	}
	return bytes, bound
}

package syslog

// TakeOver makes d, which adopted the socket of from, go on where from is: its
// Close removes the socket's file in from's stead, and it counts the kernel's
// drops from from's baseline on. It returns false, and does nothing, if the
// two do not share a socket.
func (d *Datagram) TakeOver(from *Datagram) bool {
	if cookie := d.Cookie(); cookie == 0 || cookie != from.Cookie() {
		return false
	}
	from.mu.Lock()
	from.countDropsLocked()
	baseline := from.counter - uint32(from.dropped)
	file := from.file
	from.file = nil
	from.mu.Unlock()

	d.SetBaseline(baseline)
	d.mu.Lock()
	d.file = file
	d.mu.Unlock()
	return true
}

// TakeOver makes s, which adopted the socket of from, remove the socket's file
// in from's stead.
func (s *Stream) TakeOver(from *Stream) {
	from.mu.Lock()
	file := from.file
	from.file = nil
	from.mu.Unlock()

	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
}

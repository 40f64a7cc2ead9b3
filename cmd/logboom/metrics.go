package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"logboom/buffer"
)

// collector turns a snapshot into metrics whenever it is asked.
type collector struct{ d *daemon }

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("logboom_"+name, help, labels, nil)
}

var (
	descReceived  = metric("received_total", "Messages received.", "source")
	descBytes     = metric("received_bytes_total", "Bytes of the messages received.", "source")
	descKernel    = metric("kernel_dropped_total", "Datagrams that the kernel dropped before they could be received.", "source")
	descTruncated = metric("truncated_total", "Messages that were cut at max_message.", "source")
	descRefused   = metric("refused_total", "Datagrams of senders, and connections, that were not allowed in.", "source")
	descFiltered  = metric("filtered_total", "Messages that the sink does not take.", "source", "sink")
	descDropped   = metric("dropped_total", "Messages dropped before the sink accepted them.", "source", "sink", "reason")
	descAccepted  = metric("accepted_total", "Messages that the sink accepted.", "sink")
	descDelivered = metric("delivered_total", "Messages delivered.", "sink")
	descLost      = metric("lost_total", "Messages lost after the sink accepted them.", "sink", "reason")
	descBuffered  = metric("buffered", "Messages in memory.", "sink")
	descDelBytes  = metric("delivered_bytes_total", "Bytes of text delivered.", "sink")
	descBatches   = metric("batches_total", "Batches, by what ended them.", "sink", "cause")
	descWrites    = metric("writes_total", "Write calls that brought something out.", "sink")
	descOldest    = metric("oldest_seconds", "Age of the oldest message in memory.", "sink")
	descRetries   = metric("retries_total", "Deliveries that were tried again.", "sink")
	descResent    = metric("resent_total", "Messages sent again on a new connection.", "sink")
	descNotices   = metric("notices_total", "Lines of the daemon's own in the stream.", "sink")
	descOverflow  = metric("overflow_total", "Messages that went to the overflow file.", "sink")
	descUp        = metric("program_up", "1 while the process runs.", "program", "process")
	descRestarts  = metric("program_restarts_total", "Starts but the first.", "program", "process")
	descLogLost   = metric("log_lost_total", "Lines of the daemon's own log that could not be written.")
)

// Describe sends nothing: what there is depends on the config.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the numbers of this moment.
func (c collector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	s := c.d.status()
	for name, source := range s.Sources {
		counter(descReceived, source.Received, name)
		counter(descBytes, source.Bytes, name)
		counter(descKernel, source.KernelDropped, name)
		counter(descTruncated, source.Truncated, name)
		counter(descRefused, source.refused, name)
	}
	for _, e := range s.Edges {
		counter(descFiltered, e.Filtered, e.Source, e.Sink)
		for reason, n := range e.Dropped {
			counter(descDropped, n, e.Source, e.Sink, reason)
		}
	}
	for name, k := range s.Sinks {
		counter(descAccepted, k.Accepted, name)
		counter(descDelivered, k.Delivered, name)
		for reason, n := range k.Lost {
			counter(descLost, n, name, reason)
		}
		gauge(descBuffered, float64(k.Buffered), name)
		counter(descDelBytes, k.more.DeliveredBytes, name)
		for _, cause := range buffer.Causes() {
			counter(descBatches, k.more.Batches[cause], name, cause.String())
		}
		counter(descWrites, k.more.Writes, name)
		age := 0.0
		if !k.more.Oldest.IsZero() {
			age = time.Since(k.more.Oldest).Seconds()
		}
		gauge(descOldest, age, name)
		counter(descRetries, k.more.Retries, name)
		counter(descResent, k.more.Resent, name)
		counter(descNotices, k.more.Notices, name)
		counter(descOverflow, k.more.Overflowed, name)
	}
	for process, p := range s.Programs {
		up := 0.0
		if p.PID != 0 {
			up = 1
		}
		gauge(descUp, up, p.Program, process)
		counter(descRestarts, uint64(p.Restarts), p.Program, process)
	}
	counter(descLogLost, c.d.own.lost.Load())
	for _, o := range c.d.current() {
		o.write.Collect(out)
	}
}

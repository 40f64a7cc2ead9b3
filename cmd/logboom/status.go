package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"logboom/sink"
)

// snapshot is what `logboom status --json` prints: the numbers of each source,
// edge and sink, each consistent in itself.
type snapshot struct {
	Sources  map[string]sourceStatus  `json:"sources"`
	Edges    []edgeStatus             `json:"edges"`
	Sinks    map[string]sinkStatus    `json:"sinks"`
	Programs map[string]programStatus `json:"programs"`
	Balanced bool                     `json:"balanced"`
}

type sourceStatus struct {
	Received      uint64 `json:"received"`
	Bytes         uint64 `json:"bytes"`
	KernelDropped uint64 `json:"kernel_dropped"`
	Truncated     uint64 `json:"truncated"`

	refused uint64
}

type edgeStatus struct {
	Source   string            `json:"source"`
	Sink     string            `json:"sink"`
	Filtered uint64            `json:"filtered"`
	Dropped  map[string]uint64 `json:"dropped"`
	Accepted uint64            `json:"accepted"`
}

type sinkStatus struct {
	Accepted  uint64            `json:"accepted"`
	Delivered uint64            `json:"delivered"`
	Lost      map[string]uint64 `json:"lost"`
	Buffered  uint64            `json:"buffered"`
	State     string            `json:"state"`
	LastError string            `json:"last_error"`

	more sink.Status
}

type programStatus struct {
	Program  string `json:"program"`
	State    string `json:"state"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
	Exit     string `json:"exit"`
}

// status takes a snapshot while messages flow.
func (d *daemon) status() snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := snapshot{
		Sources: make(map[string]sourceStatus), Edges: []edgeStatus{},
		Sinks: make(map[string]sinkStatus), Programs: make(map[string]programStatus),
		Balanced: true,
	}
	for _, name := range slices.Sorted(maps.Keys(d.feeds)) {
		f := d.feeds[name]
		source, edges := f.numbers()
		s.Sources[name] = source
		s.Edges = append(s.Edges, edges...)
		for _, e := range edges {
			s.Balanced = s.Balanced && source.Received == e.Accepted+e.Filtered+sum(e.Dropped)
		}
		for _, c := range f.children {
			p := c.Status()
			s.Programs[c.name] = programStatus{Program: name, State: p.State.String(), PID: p.PID, Restarts: p.Restarts, Exit: p.Exit}
		}
	}
	for name, o := range d.outlets {
		st := o.Status()
		s.Sinks[name] = sinkStatus{
			Accepted: st.Accepted, Delivered: st.Delivered, Lost: st.Lost, Buffered: st.Buffered,
			State: st.State, LastError: st.LastError, more: st,
		}
		s.Balanced = s.Balanced && st.Accepted == st.Delivered+sum(st.Lost)+st.Buffered
	}
	return s
}

// numbers are those of an input and its edges at one moment.
func (in *input) numbers() (sourceStatus, []edgeStatus) {
	in.counts.Lock()
	defer in.counts.Unlock()
	dropped := in.past
	if in.kernel != nil {
		dropped += in.kernel()
	}
	var edges []edgeStatus
	for _, e := range in.edges {
		st := edgeStatus{
			Source: in.name, Sink: e.Sink().Name(), Filtered: e.tally.Filtered, Accepted: e.tally.Accepted,
			Dropped: make(map[string]uint64),
		}
		if e.tally.Dropped > 0 {
			st.Dropped[sink.MemoryFull] = e.tally.Dropped
		}
		if e.tally.Stopped > 0 {
			st.Dropped[sink.Stopped] = e.tally.Stopped
		}
		edges = append(edges, st)
	}
	source := sourceStatus{
		Received: in.sum.Messages, Bytes: in.sum.Bytes, KernelDropped: dropped, Truncated: in.sum.Truncated,
	}
	if in.refused != nil {
		source.refused = in.refused()
	}
	return source, edges
}

// dropped is how many messages all edges dropped for a reason.
func (s *snapshot) dropped(reason string) (n uint64) {
	for _, e := range s.Edges {
		n += e.Dropped[reason]
	}
	return n
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running daemon's sources, sinks, programs and the balance of messages",
		Args:  cobra.NoArgs,
	}
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		conf, err := Load(*path)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		body, err := askDaemon(conf.RuntimeDir, "/status")
		if err != nil {
			return err
		}
		if *asJSON {
			_, err = cmd.OutOrStdout().Write(body)
			return err
		}
		var s snapshot
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("the daemon's answer: %w", err)
		}
		return s.print(cmd.OutOrStdout())
	}
	return cmd
}

// print writes the snapshot as tables.
func (s *snapshot) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SOURCE\tRECEIVED\tBYTES\tKERNEL DROPPED\tTRUNCATED")
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		v := s.Sources[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", name, v.Received, v.Bytes, v.KernelDropped, v.Truncated)
	}
	fmt.Fprintln(t, "\nFROM\tTO\tACCEPTED\tFILTERED\tDROPPED")
	for _, e := range s.Edges {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", e.Source, e.Sink, e.Accepted, e.Filtered, sum(e.Dropped))
	}
	fmt.Fprintln(t, "\nSINK\tSTATE\tACCEPTED\tDELIVERED\tLOST\tBUFFERED\tLAST ERROR")
	for _, name := range slices.Sorted(maps.Keys(s.Sinks)) {
		v := s.Sinks[name]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", name, v.State, v.Accepted, v.Delivered, sum(v.Lost), v.Buffered, v.LastError)
	}
	if len(s.Programs) > 0 {
		fmt.Fprintln(t, "\nPROCESS\tPROGRAM\tSTATE\tPID\tRESTARTS\tLAST EXIT")
		for _, name := range slices.Sorted(maps.Keys(s.Programs)) {
			v := s.Programs[name]
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\n", name, v.Program, v.State, v.PID, v.Restarts, v.Exit)
		}
	}
	fmt.Fprintf(t, "\nbalanced: %t\n", s.Balanced)
	return t.Flush()
}

//go:build race

package proc

func init() { raceEnabled = true }

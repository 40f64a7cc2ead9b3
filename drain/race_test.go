//go:build race

package drain

const raceEnabled = true

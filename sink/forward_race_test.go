//go:build race

package sink

const forwardUnderRace = true

//go:build !race

package gzipwriter

const raceEnabled = false

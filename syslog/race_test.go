//go:build race

package syslog

const raceEnabled = true

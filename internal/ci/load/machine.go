package main

import (
	"fmt"
	"os"
	"strings"
)

// What the machine says of itself is in files of Linux. Elsewhere it is not known, and zero.

// field returns the number after a name in such a file.
func field(file, name string) (n int64) {
	text, _ := os.ReadFile(file) // absent elsewhere
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

// resident is how many bytes of memory a process has.
func resident(pid int) int64 { return field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS") << 10 }

// used is how many bytes of the machine's memory are in use.
func used() int64 {
	return (field("/proc/meminfo", "MemTotal") - field("/proc/meminfo", "MemAvailable")) << 10
}

// processors is for how many seconds the processors were busy since the machine began.
func processors() float64 {
	text, _ := os.ReadFile("/proc/stat") // absent elsewhere
	var user, nice, system, idle, wait, irq, soft float64
	if _, err := fmt.Sscanf(string(text), "cpu %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		return 0
	}
	const tick = 100 // of a second, for programs
	return (user + nice + system + irq + soft) / tick
}

// processor is the name of the processors.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // absent elsewhere
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
		}
	}
	return "a processor of unknown name"
}

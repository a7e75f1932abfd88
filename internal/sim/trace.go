package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is what has happened, who did it and when.
type trace struct {
	start time.Time

	mu    sync.Mutex // guards lines
	lines []line
}

type line struct {
	at   time.Duration
	text string
}

// comment is before what may differ when a seed is played again: the words of
// an error, where two deadlines are over at one instant.
const comment = " // "

// note adds a line.
func (t *trace) note(who, format string, args ...any) {
	l := line{time.Since(t.start), who + " " + fmt.Sprintf(format, args...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, l)
}

// all returns the lines in the order of time. Where several things happened at
// one instant, nobody knows which was first; the order of their texts is as
// good as any, and always the same.
func (t *trace) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text))
	})
	lines := make([]string, len(t.lines))
	for i, l := range t.lines {
		lines[i] = fmt.Sprintf("%12.6fms %s", float64(l.at)/float64(time.Millisecond), l.text)
	}
	return lines
}

// tail is the end of a trace, in one text.
func tail(lines []string, n int) string {
	cut := ""
	if more := len(lines) - n; more > 0 {
		lines, cut = lines[more:], fmt.Sprintf("(%d lines before)\n", more)
	}
	return cut + strings.Join(lines, "\n")
}

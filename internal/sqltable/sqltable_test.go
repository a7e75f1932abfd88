package sqltable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the errors of the usual drivers look like.
type (
	errNo      int
	withField  struct{ Code errNo }
	withMethod struct{ code int }
	withNumber struct{ Number uint16 }
)

func (withField) Error() string   { return "a field" }
func (*withMethod) Error() string { return "a method" }
func (e *withMethod) Code() int   { return e.code }
func (*withNumber) Error() string { return "a number" }

func TestDriverCode(t *testing.T) {
	for _, tt := range []struct {
		err   error
		field string
		want  int
		ok    bool
	}{
		{withField{5}, "Code", 5, true},
		{&withMethod{517}, "Code", 517, true},
		{&withNumber{1213}, "Number", 1213, true},
		{fmt.Errorf("claim: %w", withField{5}), "Code", 5, true},
		{errors.Join(errors.New("other"), fmt.Errorf("%w: %w", context.Canceled, &withNumber{1205})), "Number", 1205, true},
		{&withNumber{1213}, "Code", 0, false},
		{(*withNumber)(nil), "Number", 0, false},
		{errors.New("other"), "Code", 0, false},
		{nil, "Code", 0, false},
	} {
		if got, ok := DriverCode(tt.err, tt.field); got != tt.want || ok != tt.ok {
			t.Errorf("DriverCode(%v, %s) = %d, %t; want %d, %t", tt.err, tt.field, got, ok, tt.want, tt.ok)
		}
	}
}

// B140: no duration becomes none, and none overflows.
func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1_000_000, 0: 0,
		math.MaxInt64: math.MaxInt64/1000 + 1,
	} {
		if got := micros(d); got != want {
			t.Errorf("micros(%d) = %d, want %d", d, got, want)
		}
	}
	for us, want := range map[int64]time.Duration{
		1: 1000, -1: -1000, math.MaxInt64/1000 + 1: math.MaxInt64, math.MaxInt64 / 1000: math.MaxInt64 / 1000 * 1000,
	} {
		if got := duration(us); got != want {
			t.Errorf("duration(%d) = %d, want %d", us, got, want)
		}
	}
}

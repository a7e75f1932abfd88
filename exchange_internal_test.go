package idem

import (
	"io"
	"strings"
	"testing"
	"time"
)

// What a stream is read within is freed with its end, everything else at once.
func TestFreeAfterStream(t *testing.T) {
	freed := 0
	free := func(error) { freed++ }
	ending{}.after(free)
	ending{value: &reply{}}.after(free)
	if freed != 2 {
		t.Errorf("freed %d contexts without a stream, want 2", freed)
	}

	var x exchange
	x.waits = wait{limit: time.Hour, cancel: func(error) {}}
	x.in = gapReader{body: io.NopCloser(strings.NewReader("abc")), waits: &x.waits}
	end := ending{value: &reply{stream: &x.in, flow: &x.in}}
	end.after(free)
	end.after(free)
	if freed != 2 {
		t.Fatal("freed before the stream has ended")
	}
	if _, err := io.ReadAll(&x.in); err != nil || freed != 4 {
		t.Errorf("%d contexts are free at the stream's end, want 4; %v", freed, err)
	}

	ending{value: &reply{stream: io.NopCloser(nil)}}.after(free)
	if freed != 4 {
		t.Error("freed under another protocol")
	}
}

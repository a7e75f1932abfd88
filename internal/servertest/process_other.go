//go:build !linux

package servertest

import "os/exec"

func asServer(*exec.Cmd, string, ...string) error { return nil }

func killIn(string) {}

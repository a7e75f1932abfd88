package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// asServer makes the command end when this process dies without ending it, and
// run as the first of the users that exists if this one is root, whom some
// servers refuse to be run by. The user gets the folder.
func asServer(cmd *exec.Cmd, dir string, users ...string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return err
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(dir, int(uid), int(gid))
	}
	return fmt.Errorf("servertest: root can't run this server, and none of the users %q exists", users)
}

// killIn kills all processes that work in the folder or below it, and returns
// when there are none.
func killIn(dir string) {
	for found := true; found; time.Sleep(time.Millisecond) {
		found = false
		links, _ := filepath.Glob("/proc/[0-9]*/cwd")
		for _, link := range links {
			at, err := os.Readlink(link)
			if err != nil || at != dir && !strings.HasPrefix(at, dir+"/") {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

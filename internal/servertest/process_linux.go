package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
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

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// storeEnv names the environment variable that may hold the store's URL.
const storeEnv = "IDEM_STORE"

// withStore calls do with the store that the flags name, and names it in what
// do returns.
func (c *call) withStore(do func(*storeurl.Opened) error) error {
	if c.storeURL == "" {
		return badUsage("no store is named; set -store or %s to %s", storeEnv, storeurl.Usage)
	}
	s, err := storeurl.Open(c.ctx, c.existing())
	if errors.Is(err, storeurl.ErrURL) {
		return usageError{err}
	} else if err != nil {
		return fmt.Errorf("open the store %s: %w", redact(c.storeURL, c.storeURL), err)
	}
	err = do(s)
	return errors.Join(err, s.Close())
}

// existing is the store's URL, such that a misspelt path of SQLite is an error
// instead of a new and empty file. Only migrate creates one.
func (c *call) existing() string {
	kind, rest, _ := strings.Cut(c.storeURL, ":")
	path, params, _ := strings.Cut(rest, "?")
	if c.flags.Name() == "migrate" || path == "" || kind != "sqlite" && kind != "sqlite3" || strings.Contains(params, "mode=") {
		return c.storeURL
	}
	if params != "" {
		params += "&"
	}
	return kind + ":" + path + "?" + params + "mode=rw"
}

// inStore says which store an error comes from, and what to do about it.
func (c *call) inStore(doing string, err error) error {
	todo := "check the URL and that the store answers; idem migrate creates a missing table"
	switch {
	case errors.Is(err, os.ErrPermission):
		todo = "check the rights on it"
	case c.ctx.Err() != nil:
		todo = "it was interrupted"
	case errors.Is(err, errNoRecord):
		todo = "check the half, the scope and the name; idem stale lists what is unresolved"
	case errors.Is(err, keystore.ErrFormat):
		todo = "use the version of idem that wrote it"
	case errors.Is(err, keystore.ErrCorrupt):
		todo = "look at it with the store's own tools, or restore it"
	}
	return fmt.Errorf("%s: store %s: %w (%s)", doing, redact(c.storeURL, c.storeURL), err, todo)
}

// secrets are the parameters of a URL that hold one.
var secrets = regexp.MustCompile(`(?i)\b((?:ssl)?password|pass|passwd|pwd)=[^&\s"]*`)

// noPort is what net/url finds where a password has a slash.
var noPort = regexp.MustCompile(`invalid port ".*?"`)

// redact takes the password of the store's URL out of a text.
func redact(text, storeURL string) string {
	if p := password(storeURL); p != "" {
		text = strings.ReplaceAll(text, ":"+p+"@", ":***@")
	}
	text = noPort.ReplaceAllString(text, "invalid port")
	return secrets.ReplaceAllString(text, "$1=***")
}

// password is what stands between the user and the host. The URL need not be
// well formed, and its passwords may hold any character.
func password(storeURL string) string {
	_, rest, _ := strings.Cut(storeURL, ":")
	if _, after, ok := strings.Cut(rest, "//"); ok {
		rest = after
	} else {
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, "mysql:"), "mariadb:")
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return ""
	}
	_, p, _ := strings.Cut(rest[:at], ":")
	return p
}

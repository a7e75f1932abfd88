package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxProbeBody bounds what is sent and what is read, in bytes.
const maxProbeBody = 1 << 20

// probeOptions are the flags as they are given. Nothing of a header may get into
// an error: it can be a secret.
type probeOptions struct {
	method, body, bodyFile, otherBody string
	keyHeader, keyField               string
	headers                           texts
	timeout                           time.Duration
}

// texts is a flag that may be given several times. It takes any value, as an
// error would be printed with it.
type texts []string

func (t *texts) String() string     { return "" }
func (t *texts) Set(s string) error { *t = append(*t, s); return nil }

// probeTarget is an endpoint and how to ask it.
type probeTarget struct {
	url  *url.URL // without its user
	name string   // for people: no user, no query
	method,
	keyHeader, keyField string
	header      http.Header
	host        string
	body, other []byte
	changed     string // what of the body the other one changes
	timeout     time.Duration
	secrets     []string
}

// target checks the options, all of them before anything is sent.
func (o *probeOptions) target(args []string) (*probeTarget, error) {
	switch {
	case len(args) == 0:
		return nil, badUsage("no URL is named; give the endpoint's, such as http://127.0.0.1:8080/charges")
	case len(args) > 1:
		return nil, badUsage("%d URLs are named; give one", len(args))
	case o.timeout <= 0:
		return nil, badUsage("-timeout is %v; use a positive duration", o.timeout)
	case o.keyHeader != "" && o.keyField != "":
		return nil, badUsage("-key-header and -key-field are both set; the key goes into one of them")
	case !isHeaderName(o.method):
		return nil, badUsage("-method is %q; it must be a method of HTTP", o.method)
	case o.keyHeader != "" && !isHeaderName(o.keyHeader):
		return nil, badUsage("-key-header is %q; it must be the name of a header", o.keyHeader)
	}
	t := &probeTarget{method: o.method, keyField: o.keyField, timeout: o.timeout, header: http.Header{}}
	if o.keyField == "" {
		t.keyHeader = http.CanonicalHeaderKey(cmp.Or(o.keyHeader, "Idempotency-Key"))
	}
	if err := t.setHeaders(o.headers); err != nil {
		return nil, err
	}
	if err := t.setURL(args[0]); err != nil {
		return nil, err
	}
	return t, t.setBodies(o)
}

// setURL takes the URL apart. Its user is sent as http.Client would.
func (t *probeTarget) setURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return badUsage("the URL is not one of http or https with a host, such as http://127.0.0.1:8080/charges") // which may hold a password
	}
	if user := u.User; user != nil {
		password, _ := user.Password()
		t.addSecret(user.Username())
		t.addSecret(password)
		if t.header.Get("Authorization") == "" {
			r := http.Request{Header: t.header}
			r.SetBasicAuth(user.Username(), password)
			t.addSecret(t.header.Get("Authorization"))
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			t.addSecret(v)
		}
	}
	t.url = u
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	t.name = nameOf(u)
	return nil
}

// nameOf is a URL without what may be a secret.
func nameOf(u *url.URL) string {
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.RawQuery != "" {
		return printable(name.String()) + "?..."
	}
	return printable(name.String())
}

func (t *probeTarget) setHeaders(lines []string) error {
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || !isHeaderName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return badUsage("-header: number %d is not NAME: VALUE", i+1)
		case strings.EqualFold(name, t.keyHeader):
			return badUsage("-header: %s is for the keys, which are made here", t.keyHeader)
		case strings.EqualFold(name, "Host"):
			t.host = value
		default:
			t.header.Add(name, value)
		}
		t.addSecret(value)
	}
	return nil
}

// addSecret keeps a value, and the words of it, out of what is printed. What is
// too short for a secret would only make holes into other words.
func (t *probeTarget) addSecret(value string) {
	for _, s := range append([]string{value}, strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ';' || r == ',' })...) {
		if len(s) >= 4 && !slices.Contains(t.secrets, s) {
			t.secrets = append(t.secrets, s)
		}
	}
	slices.SortFunc(t.secrets, func(a, b string) int { return len(b) - len(a) }) // the whole before its parts
}

// hide takes what may be a secret out of a text that others have written.
func (t *probeTarget) hide(text string) string {
	for _, s := range t.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

func (t *probeTarget) setBodies(o *probeOptions) error {
	t.body = []byte(o.body)
	if o.bodyFile != "" {
		if o.body != "" {
			return badUsage("-body and -body-file are both set; use one of them")
		}
		var err error
		if t.body, err = readProbeBody(o.bodyFile); err != nil {
			return err
		}
	}
	if t.header.Get("Content-Type") == "" && json.Valid(t.body) {
		t.header.Set("Content-Type", "application/json")
	}
	if t.other = []byte(o.otherBody); o.otherBody == "" {
		t.other, t.changed = otherBody(t.body)
	}
	switch {
	case len(t.other) == 0:
		return badUsage("the body is no JSON with a number or a text that could be changed; give another one by -other-body")
	case bytes.Equal(t.body, t.other):
		return badUsage("-other-body is the body; give another one that the endpoint takes")
	case t.keyField == "":
		return nil
	}
	for _, body := range [][]byte{t.body, t.other} {
		if _, err := withKeyField(body, t.keyField, "k"); err != nil {
			return badUsage("-key-field %s: %w", t.keyField, err)
		}
	}
	return nil
}

// carrier is where the key goes.
func (t *probeTarget) carrier() string {
	if t.keyField != "" {
		return "body's " + t.keyField
	}
	return "header " + t.keyHeader
}

// isHeaderName tells whether s is a token of HTTP.
func isHeaderName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// bodyOf is a body with a key in its field, where the key goes there.
func (t *probeTarget) bodyOf(body []byte, key probeKey) ([]byte, error) {
	if t.keyField == "" || key.none {
		return body, nil
	}
	b, err := withKeyField(body, t.keyField, key.text)
	if err != nil {
		return nil, fmt.Errorf("put the key into the body: %w", err)
	}
	return b, nil
}

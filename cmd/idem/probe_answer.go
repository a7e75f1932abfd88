package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// likeness is how two answers compare.
type likeness int

const (
	// unclear: they differ, in nothing that names what was made.
	unclear likeness = iota
	// alike: they are equal, but so are the answers to different keys.
	alike
	// same: they are equal, and another key gets another answer.
	same
	// sameThing: they differ, but name the same thing.
	sameThing
	// another: they name different things.
	another
)

// one tells that two answers are to one operation.
func (l likeness) one() bool { return l == same || l == sameThing }

// leavesOf are the parts of an answer that are compared, by their paths. The key
// is taken out of it: it would tell answers apart that only echo it.
func (a *probeAnswer) leavesOf() map[string]string {
	leaves := map[string]string{"its status": strconv.Itoa(a.status)}
	for _, name := range []string{"Content-Type", "Location", "Content-Location"} {
		if v := a.header.Get(name); v != "" {
			leaves["header "+name] = string(a.keyless([]byte(v)))
		}
	}
	body := a.keyless(a.body)
	if !json.Valid(body) {
		leaves["its text"] = string(body)
		return leaves
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // 1e2 and 100 differ, which is the safe side
	walkLeaves(d, "", func(l leaf) { leaves[l.path] = fmt.Sprintf("%T %v", l.value, l.value) })
	return leaves
}

func (a *probeAnswer) keyless(text []byte) []byte {
	if a.key == "" {
		return text
	}
	return bytes.ReplaceAll(text, []byte(a.key), []byte("KEY"))
}

// differences are the paths of what differs.
func differences(a, b map[string]string) (paths []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for p := range all {
		x, inA := a[p]
		if y, inB := b[p]; inA != inB || x != y {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// compare compares two answers. Telling are the paths by which the answers to
// two keys differ. It also returns the paths that the decision rests on.
func compare(a, b *probeAnswer, telling []string) (likeness, []string) {
	first, second := a.leavesOf(), b.leavesOf()
	differ := differences(first, second)
	switch {
	case len(differ) == 0 && len(telling) == 0:
		return alike, nil
	case len(differ) == 0:
		return same, telling
	}
	var equal, unequal []string
	for _, p := range slices.Sorted(maps.Keys(first)) {
		_, inBoth := second[p]
		switch {
		case !inBoth || !namesThing(p):
		case slices.Contains(differ, p):
			unequal = append(unequal, p)
		case slices.Contains(telling, p):
			equal = append(equal, p)
		}
	}
	switch {
	case len(unequal) > 0 && len(equal) == 0:
		return another, unequal
	case len(equal) > 0 && len(unequal) == 0:
		return sameThing, equal
	}
	return unclear, differ
}

// namesThing tells whether what stands there most likely names what was made.
func namesThing(p string) bool {
	if p == "header Location" {
		return true
	}
	names := strings.Split(p, ".")
	for len(names) > 1 && strings.Trim(names[len(names)-1], "0123456789") == "" { // in a list
		names = names[:len(names)-1]
	}
	name := names[len(names)-1]
	plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	switch plain {
	case "requestid", "traceid", "spanid", "correlationid", "debugid", "logid": // of the request, not of the thing
		return false
	case "id", "uuid", "guid", "reference":
		return true
	}
	for _, end := range []string{"_id", "-id", "Id", "ID", "_uuid", "Uuid", "UUID", "_reference", "Reference"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// replayMarkers are the headers that mark a replay by "true".
func replayMarkers() []string {
	names := []string{"Idempotent-Replayed", "Idempotency-Replayed"}
	for _, c := range shipped() {
		if c.ReplayHeader != "" && !slices.Contains(names, c.ReplayHeader) {
			names = append(names, c.ReplayHeader)
		}
	}
	return names
}

// marker is the header that marks the answer as a replay, or "".
func (a *probeAnswer) marker() string {
	for _, name := range replayMarkers() {
		if strings.EqualFold(a.header.Get(name), "true") {
			return name
		}
	}
	return ""
}

// succeeded tells that something was done.
func (a *probeAnswer) succeeded() bool { return a.status >= 200 && a.status < 300 }

// refused tells of an answer that can be about the key. Guards and limits answer
// whatever the key is.
func (a *probeAnswer) refused() bool {
	return a.status >= 400 && a.status < 500 && !slices.Contains([]int{401, 403, 404, 405, 407, 408, 429}, a.status)
}

// codes are the error codes in a JSON body, where idem.Answer looks for them.
func (a *probeAnswer) codes() (codes []string) {
	type object = map[string]json.RawMessage
	var top, inner object
	if json.Unmarshal(a.body, &top) != nil {
		return nil
	}
	objects := []object{top}
	if json.Unmarshal(top["error"], &inner) == nil && inner != nil {
		objects = append(objects, inner)
	}
	for _, o := range slices.Clone(objects) {
		for _, list := range []string{"errors", "details"} {
			var items []object
			if json.Unmarshal(o[list], &items) == nil {
				objects = append(objects, items[:min(len(items), 8)]...)
			}
		}
	}
	for _, o := range objects {
		for _, name := range []string{"code", "type", "error", "errorCode", "error_code", "errorType", "errorClass", "reason", "reasonCode", "issue", "name"} {
			var text string
			var number json.Number
			switch {
			case json.Unmarshal(o[name], &text) == nil && text != "":
				codes = append(codes, text)
			case json.Unmarshal(o[name], &number) == nil && number != "":
				codes = append(codes, string(number))
			}
		}
	}
	return codes
}

// describe is an answer's status and, of a refusal, its codes, for people.
func (t *probeTarget) describe(a *probeAnswer) string {
	said := strconv.Itoa(a.status)
	if a.status < 400 {
		return said
	}
	parts := []string{said}
	for _, code := range a.codes() {
		code = t.hide(code)
		if strings.Contains(code, "://") {
			code = path.Base(code)
			code = code[strings.LastIndexByte(code, '#')+1:]
		}
		if len(code) > 60 {
			code = strings.ToValidUTF8(code[:60], "") + "..."
		}
		if code = printable(code); code != "" && len(parts) < 4 && !slices.Contains(parts, code) {
			parts = append(parts, code)
		}
	}
	return strings.Join(parts, " ")
}

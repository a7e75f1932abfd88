package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/maphash"
	"slices"
	"unicode/utf8"
)

// maxDepth is how deeply arrays and objects may nest before a text is compared by its bytes.
const maxDepth = 1000

// JSON returns the digest of what a JSON text says. White space and the order of members do not count, the order of
// elements does. Strings are compared after unescaping, numbers by their literal text: 1, 1.0 and 1e0 are three
// numbers, and none ever becomes a float64.
//
// A text on whose meaning readers may disagree counts by its bytes, under another domain tag: invalid JSON, trailing
// data, invalid UTF-8, lone surrogates, nesting deeper than 1000, and two members of one object whose names are equal
// or differ only in case (encoding/json lets the last of them win, so there their order counts).
func JSON(text []byte) [32]byte {
	if sum, ok := canonical(text); ok {
		return sum
	}
	return raw(text)
}

// canonical returns the digest of a text whose meaning is beyond doubt.
func canonical(text []byte) (sum [32]byte, ok bool) {
	if !utf8.Valid(text) {
		return sum, false
	}
	e := encoder{scanner: scanner{in: text}, out: make([]byte, 0, min(2*len(text)+64, chunk+1024)),
		members: make([]member, 0, 16)}
	e.out = append(e.out, jsonTag...)
	if !e.value(0) {
		return sum, false
	}
	if e.peek(); e.at != len(text) {
		return sum, false
	}
	return e.sum(), true
}

// chunk is how much may gather for a digest before it is hashed away.
const chunk = 8 << 10

// encoder writes what a text says as pieces that begin with a kind and delimit themselves. Its methods answer false
// where the text is invalid or ambiguous.
type encoder struct {
	scanner
	out     []byte
	digest  digest
	members []member // of all objects now open, the innermost last
	// known are the digests of some values seen lately: most texts say the same
	// small things again and again, and hashing these is most of the work.
	known [64]knownSum
}

// oneBlock is the longest value that SHA-256 takes in one block.
const oneBlock = 55

// knownSum is a value of one block and its digest.
type knownSum struct {
	sum    [sha256.Size]byte
	length uint8 // 0: none yet
	value  [oneBlock]byte
}

// seed picks the places of known values. It has no influence on a digest.
var seed = maphash.MakeSeed()

// digest is the one that the end of out goes into: that of a member's value, or of the whole text.
type digest struct {
	from int       // where in out it begins
	hash hash.Hash // has what was before; nil: nothing was
}

// member is where in out a member stands: the length of its name, the name, and the value's digest. A digest, not the
// value, so that sorting moves no values and deep nesting costs no copies.
type member struct {
	start, name, digest int
}

// value reads one value that stands inside depth arrays and objects.
func (e *encoder) value(depth int) bool {
	switch e.peek() {
	case '{':
		return depth < maxDepth && e.object(depth+1)
	case '[':
		return depth < maxDepth && e.array(depth+1)
	case '"':
		e.out = append(e.out, 's')
		_, ok := e.text()
		return ok
	case 't':
		e.out = append(e.out, 't')
		return e.word("true")
	case 'f':
		e.out = append(e.out, 'f')
		return e.word("false")
	case 'n':
		e.out = append(e.out, 'n')
		return e.word("null")
	default:
		literal, ok := e.number()
		e.out = appendText(append(e.out, 'd'), literal)
		return ok
	}
}

func (e *encoder) array(depth int) bool {
	e.at++
	e.out = append(e.out, '[')
	for more := !e.next(']'); more; {
		if !e.value(depth) {
			return false
		}
		if len(e.out)-e.digest.from > chunk {
			e.drain()
		}
		if more = e.next(','); !more && !e.next(']') {
			return false
		}
	}
	e.out = append(e.out, ']') // no value begins with it, so it ends the elements
	return true
}

func (e *encoder) object(depth int) bool {
	e.at++
	start, first := len(e.out), len(e.members)
	e.out = append(e.out, '{', 0) // room for how many members there are
	sorted := true
	for more := !e.next('}'); more; {
		if !e.member(depth) {
			return false
		}
		if last := len(e.members) - 1; sorted && last > first {
			sorted = e.compare(e.members[last-1], e.members[last]) < 0
		}
		if more = e.next(','); !more && !e.next('}') {
			return false
		}
	}
	members := e.members[first:]
	e.members = e.members[:first]
	if sorted && len(members) < 0x80 {
		e.out[start+1] = byte(len(members))
		return true
	}
	slices.SortFunc(members, e.compare)
	end := len(e.out)
	e.out = binary.AppendUvarint(e.out, uint64(len(members)))
	for i, m := range members {
		if i > 0 && e.compare(members[i-1], m) == 0 {
			return false
		}
		e.out = append(e.out, e.out[m.start:m.digest+sha256.Size]...)
	}
	e.out = append(e.out[:start+1], e.out[end:]...)
	return true
}

// member reads one member of an object, and leaves the value's digest where the value was.
func (e *encoder) member(depth int) bool {
	if e.peek() != '"' {
		return false
	}
	start := len(e.out)
	length, ok := e.text()
	if !ok || !e.next(':') {
		return false
	}
	outer, at := e.digest, len(e.out)
	e.digest = digest{from: at}
	if !e.value(depth) {
		return false
	}
	sum := e.sum()
	e.out, e.digest = append(e.out[:at], sum[:]...), outer
	e.members = append(e.members, member{start, at - length, at})
	return true
}

// compare orders members by name.
func (e *encoder) compare(a, b member) int {
	return compareFold(e.out[a.name:a.digest], e.out[b.name:b.digest])
}

// text reads a string and writes it unescaped, behind its length.
func (e *encoder) text() (length int, ok bool) {
	text, escaped, ok := e.quoted()
	if !escaped {
		e.out = appendText(e.out, text)
		return len(text), ok
	}
	// How long it is shows once it is unescaped, so it is moved to its length then.
	var prefix [binary.MaxVarintLen64]byte
	start := len(e.out)
	e.out, ok = appendUnescaped(append(e.out, prefix[:]...), text)
	unescaped := e.out[start+len(prefix):]
	e.out = appendText(e.out[:start], unescaped)
	return len(unescaped), ok
}

// drain hashes what has gathered.
func (e *encoder) drain() {
	if e.digest.hash == nil {
		e.digest.hash = sha256.New()
	}
	e.digest.hash.Write(e.out[e.digest.from:])
	e.out = e.out[:e.digest.from]
}

// sum returns the digest that the end of out goes into.
func (e *encoder) sum() [32]byte {
	if e.digest.hash == nil {
		value := e.out[e.digest.from:]
		if len(value) > oneBlock {
			return sha256.Sum256(value)
		}
		k := &e.known[maphash.Bytes(seed, value)%uint64(len(e.known))]
		if string(k.value[:k.length]) != string(value) {
			k.length = uint8(copy(k.value[:], value))
			k.sum = sha256.Sum256(value)
		}
		return k.sum
	}
	e.drain()
	return [32]byte(e.digest.hash.Sum(nil))
}

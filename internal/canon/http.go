package canon

import (
	"crypto/sha256"
	"mime"
	"strings"
	"unicode"
)

// Request is what a fingerprint of an HTTP request is made of. Header fields other than the media type are not part of
// it: they change between retries (credentials, tracing).
type Request struct {
	Origin string // scheme, host and port; empty where the receiver is implied
	Method string // as sent, upper case; compared exactly, and empty does not mean GET
	Path   string // escaped path text, compared exactly
	Query  string // raw query text, compared exactly: the order of parameters counts
	// ContentType is the header's text. Case and the order of parameters do not count, unless it does not parse.
	ContentType string
	Body        []byte    // the whole body; nil and empty are the same
	Payload     *[32]byte // a further digest to hash in; nil: none, which differs from every digest
}

// HTTP returns the fingerprint of r: requests share it only if all parts agree.
//
//   - Method and path are part of it, so one key used on two routes is a mismatch (B134).
//   - A body whose media type is application/json or ends in +json is compared by [JSON], so the order of its members
//     does not count (B121). A charset other than UTF-8 turns this off: the same bytes may then say something else.
//   - Every other body is compared by its bytes. A form encoded again as multipart with a new boundary is therefore
//     another request (B128); a client that wants to retry sends the bytes it sent first.
func HTTP(r Request) [32]byte {
	media, isJSON := mediaType(r.ContentType)
	body := raw
	if isJSON {
		body = JSON
	}
	bodySum := body(r.Body)

	b := append(make([]byte, 0, 512), httpTag...)
	for _, text := range [...]string{r.Origin, r.Method, r.Path, r.Query, media} {
		b = appendText(b, text)
	}
	b = append(b, bodySum[:]...)
	if r.Payload != nil {
		b = append(b, r.Payload[:]...) // comes last and has a fixed size, so its presence needs no mark
	}
	return sha256.Sum256(b)
}

// mediaType returns the text by which a Content-Type is compared, and whether it announces JSON in UTF-8.
func mediaType(header string) (text string, isJSON bool) {
	if header == "application/json" { // most are, and parsing costs more than all else here
		return "media application/json", true
	}
	asSent := "raw " + header
	// ParseMediaType drops extended parameters in charsets it does not know, guesses at backslashes, and lower-cases
	// some letters outside ASCII into it: two header texts that differ could come out the same.
	if strings.ContainsFunc(header, func(r rune) bool { return r == '*' || r == '\\' || r > unicode.MaxASCII }) {
		return asSent, false
	}
	media, params, err := mime.ParseMediaType(header)
	if err != nil {
		return asSent, false
	}
	if text = mime.FormatMediaType(media, params); text == "" {
		return asSent, false
	}
	charset, given := params["charset"]
	return "media " + text, (media == "application/json" || strings.HasSuffix(media, "+json")) &&
		(!given || strings.EqualFold(charset, "utf-8"))
}

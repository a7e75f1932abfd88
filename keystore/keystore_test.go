package keystore_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Records outlive the code that wrote them, so their names may never change.
func TestRecordIDIsStable(t *testing.T) {
	for _, tt := range []struct {
		got  [32]byte
		want string
	}{
		{keystore.RecordID(keystore.Client, "acme/charge", "id", "order-1"), "c504420f8b77eb69c5f9a5f1fdfdaea535292c501f8d05aeb76d7ab018a95dc9"},
		{keystore.RecordID(keystore.Server, "acme", "key", "order-1"), "224b4fea40c4b57d44dd3f47a27d7f37d7f5df450d713f2f84d1fe3edf52ef49"},
		{keystore.ScopeDigest(keystore.Client, "acme/charge"), "373bc054a4c97eb053505c80710e79c173647f8b7e088fd665e6f13c612b02a5"},
	} {
		if got := hex.EncodeToString(tt.got[:]); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// B064, B065: names that a column or a collation would merge stay apart.
func TestRecordIDKeepsNamesApart(t *testing.T) {
	long := strings.Repeat("x", 255)
	seen := map[[32]byte]string{}
	for _, name := range [][4]string{
		{"client", "s", "id", "k"}, {"server", "s", "id", "k"}, {"client", "s", "key", "k"},
		{"client", "s", "id", "K"}, {"client", "s", "id", "k "}, {"client", "s", "id", "k\x00"},
		{"client", "sk", "id", ""}, {"client", "", "id", "sk"}, {"client", "si", "d", "k"},
		{"client", "s", "id", "é"}, {"client", "s", "id", "e\u0301"}, {"client", "s", "id", "\xff"},
		{"client", "s", "id", long + "a"}, {"client", "s", "id", long + "b"},
	} {
		id := keystore.RecordID(keystore.Half(name[0]), name[1], name[2], name[3])
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %s have one record", name, other)
		}
		seen[id] = fmt.Sprintf("%q", name)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	claim := keystore.ClaimParams{Nonce: [16]byte{1}, Lease: time.Second}
	with := func(change func(*keystore.ClaimParams)) error {
		p := claim
		change(&p)
		return p.Validate()
	}
	big := make([]byte, keystore.MaxMeta+1)
	for field, tt := range map[string]struct{ got, want error }{
		"ClaimParams.Nonce":  {with(func(p *keystore.ClaimParams) { p.Nonce = [16]byte{} }), keystore.ErrInvalid},
		"ClaimParams.Lease":  {with(func(p *keystore.ClaimParams) { p.Lease = 0 }), keystore.ErrInvalid},
		"ClaimParams.Keep":   {with(func(p *keystore.ClaimParams) { p.Keep = -1 }), keystore.ErrInvalid},
		"ClaimParams.Meta":   {with(func(p *keystore.ClaimParams) { p.Meta = big }), keystore.ErrTooLarge},
		"RenewParams.Lease":  {keystore.RenewParams{Lease: -1}.Validate(), keystore.ErrInvalid},
		"RenewParams.Meta":   {keystore.RenewParams{Lease: 1, Meta: big}.Validate(), keystore.ErrTooLarge},
		"Retention":          {keystore.CompleteParams{}.Validate(), keystore.ErrInvalid},
		"ReleaseParams.How":  {keystore.ReleaseParams{How: 9}.Validate(), keystore.ErrInvalid},
		"ReleaseParams.Meta": {keystore.ReleaseParams{How: keystore.Reject, Meta: big}.Validate(), keystore.ErrTooLarge},
		"Query.Limit":        {keystore.Query{Limit: -1}.Validate(), keystore.ErrInvalid},
		"Purge limit":        {keystore.ValidatePurge(0), keystore.ErrInvalid},
	} {
		if !errors.Is(tt.got, tt.want) || !strings.Contains(tt.got.Error(), field) {
			t.Errorf("%s: got %v, want %v naming the field", field, tt.got, tt.want)
		}
	}
	for _, err := range []error{
		claim.Validate(), keystore.RenewParams{Lease: 1}.Validate(), keystore.CompleteParams{Retention: 1}.Validate(),
		keystore.ReleaseParams{How: keystore.Abandon}.Validate(), keystore.Query{}.Validate(), keystore.ValidatePurge(1),
	} {
		if err != nil {
			t.Errorf("valid parameters: %v", err)
		}
	}
}

func TestFinal(t *testing.T) {
	for _, err := range []error{keystore.ErrFenced, keystore.ErrInvalid, keystore.ErrTooLarge, keystore.ErrCorrupt, keystore.ErrFormat} {
		if !keystore.Final(fmt.Errorf("store: claim: %w", err)) {
			t.Errorf("%v may be repeated", err)
		}
	}
	if keystore.Final(nil) || keystore.Final(errors.New("connection reset")) {
		t.Error("an unknown fate is final")
	}
	if keystore.Final(fmt.Errorf("store: complete: %w", keystore.ErrFull)) {
		t.Error("a full disk is full for ever")
	}
}

func TestUnresolvedIsDerived(t *testing.T) {
	dead := keystore.Record{State: keystore.Running, Begun: true}
	alive, notBegun, done := dead, dead, dead
	alive.LeaseLeft, notBegun.Begun, done.State = 1, false, keystore.Done
	for _, tt := range []struct {
		rec  keystore.Record
		want bool
	}{{dead, true}, {alive, false}, {notBegun, false}, {done, false}, {keystore.Record{}, false}} {
		if got := tt.rec.Unresolved(); got != tt.want {
			t.Errorf("Unresolved of %+v is %v, want %v", tt.rec, got, tt.want)
		}
	}
}

func ExampleRecordID() {
	id := keystore.RecordID(keystore.Server, "tenant-7", "key", "order-17")
	fmt.Printf("%x\n", id[:8])
	// Output: 147aa3d358df82fb
}

func ExampleStatus_String() {
	fmt.Println(keystore.InFlight, keystore.Running, keystore.Abandon, keystore.Status(0))
	// Output: in-flight running abandon Status(0)
}

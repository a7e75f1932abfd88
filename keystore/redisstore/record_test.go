package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

// A double has 53 bits: one more is lost unless the scripts take tokens for
// text.
func TestTokensAreExact(t *testing.T) {
	s := newStore(t, shared, Config{})
	p := params()
	first := acquire(t, s, p)
	if first.Token < 1<<50 || first.Token > 1<<53 {
		t.Errorf("the first token is %d, which is no time in microseconds", first.Token)
	}
	release(t, s, first, keystore.Abandon)
	const big = 1 << 53 // the first one without a successor among the doubles
	ok(t, s.client.HSet(t.Context(), s.key(p.ID), "token", fmt.Sprint(uint64(big))).Err())
	first.Token = big
	is(t, completeErr(t, s, keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: big - 1}, "result"), keystore.ErrFenced)

	r := rival(p)
	r.Takeover = true
	second := acquire(t, s, r)
	if second.Token != big+1 {
		t.Fatalf("the token after %d is %d", uint64(big), second.Token)
	}
	fenced(t, s, first)
	fenced(t, s, keystore.Owner{ID: p.ID, Nonce: r.Nonce, Token: big})
	if got := records(t, s, keystore.Query{ID: &p.ID})[0].Token; got != big+1 {
		t.Errorf("Records tells the token %d, want %d", got, uint64(big+1))
	}
	complete(t, s, second, "result")
}

// B160: the server has forgotten a claim, as after a fail-over to a replica
// that lacked it. Who holds it by then is told so, and changes nothing.
func TestB160LostClaimIsFenced(t *testing.T) {
	s := newStore(t, shared, Config{})
	p := params()
	first := acquire(t, s, p)
	ok(t, s.client.Del(t.Context(), s.key(p.ID)).Err())
	fenced(t, s, first)

	second := acquire(t, s, rival(p))
	if second.Token <= first.Token {
		t.Errorf("the token went from %d to %d; it must rise over the loss of a record", first.Token, second.Token)
	}
	fenced(t, s, first)
	complete(t, s, second, "of the second owner")
	fenced(t, s, first)
	if got := claim(t, s, rival(p), keystore.Completed).Record.Result; string(got) != "of the second owner" {
		t.Errorf("the result is %q", got)
	}
}

// B161: a server without our scripts, as after a restart, gets them again.
func TestB161ScriptFlushBetweenCalls(t *testing.T) {
	client := newClient(t, shared)
	s := storeOn(t, client, Config{})
	client.AddHook(flushing{client})
	p := params()
	o := acquire(t, s, p)
	ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}))
	claim(t, s, rival(p), keystore.InFlight)
	for _, q := range []keystore.Query{{ID: &p.ID}, {}} {
		if n := len(records(t, s, q)); n != 1 {
			t.Fatalf("Records returned %d records, want 1", n)
		}
	}
	release(t, s, o, keystore.Abandon)
	complete(t, s, o, "result")
	claim(t, s, rival(p), keystore.Completed)
}

// flushing has the server forget its scripts before every EVALSHA but those of
// a pipeline, which loads them.
type flushing struct{ client *redis.Client }

func (f flushing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f flushing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "scan" {
			if err := f.client.ScriptFlush(ctx).Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (f flushing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A record that can't be read is granted to nobody and left as it is.
func TestUnreadableRecords(t *testing.T) {
	s := newStore(t, shared, Config{})
	set := func(field, value string) func(string) *redis.Cmd {
		return func(key string) *redis.Cmd { return s.client.Do(t.Context(), "HSET", key, field, value) }
	}
	del := func(field string) func(string) *redis.Cmd {
		return func(key string) *redis.Cmd { return s.client.Do(t.Context(), "HDEL", key, field) }
	}
	for name, tt := range map[string]struct {
		spoil func(key string) *redis.Cmd
		want  error
	}{
		"newer format":        {set("v", "2"), keystore.ErrFormat},
		"no format":           {del("v"), keystore.ErrCorrupt},
		"unknown state":       {set("state", "paused"), keystore.ErrCorrupt},
		"no state":            {del("state"), keystore.ErrCorrupt},
		"short scope":         {set("scope", "x"), keystore.ErrCorrupt},
		"long fingerprint":    {set("fp", strings.Repeat("x", 33)), keystore.ErrCorrupt},
		"short nonce":         {set("nonce", ""), keystore.ErrCorrupt},
		"no nonce":            {del("nonce"), keystore.ErrCorrupt},
		"token no number":     {set("token", "1e3"), keystore.ErrCorrupt},
		"token zero":          {set("token", "0"), keystore.ErrCorrupt},
		"token too large":     {set("token", "9223372036854775807"), keystore.ErrCorrupt},
		"no token":            {del("token"), keystore.ErrCorrupt},
		"negative generation": {set("gen", "-1"), keystore.ErrCorrupt},
		"generation too high": {set("gen", "4294967296"), keystore.ErrCorrupt},
		"begun unclear":       {set("begun", "yes"), keystore.ErrCorrupt},
		"since no number":     {set("since", "now"), keystore.ErrCorrupt},
		"lease no number":     {set("ends", "inf"), keystore.ErrCorrupt},
		"no lease":            {del("ends"), keystore.ErrCorrupt},
		"keep no number":      {set("keep", "0x10"), keystore.ErrCorrupt},
		"unknown release":     {set("how", "lost"), keystore.ErrCorrupt},
		"no meta":             {del("meta"), keystore.ErrCorrupt},
		"done without result": {set("state", "done"), keystore.ErrCorrupt},
		"another type": {func(key string) *redis.Cmd {
			return s.client.Do(t.Context(), "SET", key, "lock")
		}, keystore.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			o := acquire(t, s, p)
			ok(t, tt.spoil(s.key(p.ID)).Err())
			defer s.client.Del(context.Background(), s.key(p.ID))
			before := s.client.Dump(t.Context(), s.key(p.ID)).Val()

			r := rival(p)
			r.Takeover = true
			for _, again := range []keystore.ClaimParams{p, r} {
				_, err := s.Claim(t.Context(), again)
				is(t, err, tt.want)
				if !strings.Contains(err.Error(), s.key(p.ID)) {
					t.Errorf("the error does not name the key: %v", err)
				}
			}
			is(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}), tt.want)
			is(t, completeErr(t, s, o, "result"), tt.want)
			for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
				is(t, s.Release(t.Context(), o, keystore.ReleaseParams{How: how}), tt.want)
			}
			for _, q := range []keystore.Query{{ID: &p.ID}, {}, {Scope: &[32]byte{1}}} {
				_, err := s.Records(t.Context(), q)
				is(t, err, tt.want)
			}
			if after := s.client.Dump(t.Context(), s.key(p.ID)).Val(); after != before {
				t.Error("the record has changed")
			}
		})
	}
}

// One unreadable record must not keep recovery from the others for ever.
func TestPagesAroundAnUnreadableRecord(t *testing.T) {
	s := newStore(t, shared, Config{})
	var ids [3][32]byte
	for i := range ids {
		p := params()
		p.ID = [32]byte{31: byte(i + 1)}
		ids[i] = acquire(t, s, p).ID
	}
	ok(t, s.client.HDel(t.Context(), s.key(ids[1]), "v").Err())
	for _, q := range []keystore.Query{{}, {Limit: 2}, {After: ids[0]}} {
		_, err := s.Records(t.Context(), q)
		is(t, err, keystore.ErrCorrupt)
	}
	for want, q := range map[[32]byte]keystore.Query{ids[0]: {Limit: 1}, ids[2]: {After: ids[1]}} {
		if recs := records(t, s, q); len(recs) != 1 || recs[0].ID != want {
			t.Errorf("Records returned %d records, want the one beside the unreadable", len(recs))
		}
	}
}

// What others keep under the prefix is none of our business.
func TestForeignKeysAreNotListed(t *testing.T) {
	s := newStore(t, shared, Config{})
	p := params()
	acquire(t, s, p)
	for _, foreign := range []string{"{x}", "{", "{" + strings.Repeat("AB", 32) + "}", "{" + strings.Repeat("ab", 32) + "}x"} {
		ok(t, s.client.Set(t.Context(), s.prefix+foreign, "x", time.Minute).Err())
	}
	if recs := records(t, s, keystore.Query{}); len(recs) != 1 || recs[0].ID != p.ID {
		t.Errorf("Records returned %d records, want the one", len(recs))
	}
}

func TestMaxResult(t *testing.T) {
	s := newStore(t, shared, Config{MaxResult: 3})
	p := params()
	o := acquire(t, s, p)
	is(t, completeErr(t, s, o, "four"), keystore.ErrTooLarge)
	claim(t, s, rival(p), keystore.InFlight)
	complete(t, s, o, "yes")
}

func TestCancelledContextChangesNothing(t *testing.T) {
	s := newStore(t, shared, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := params()
	o := acquire(t, s, p)
	_, claimErr := s.Claim(ctx, params())
	_, recordsErr := s.Records(ctx, keystore.Query{})
	_, purgeErr := s.Purge(ctx, 1)
	for call, err := range map[string]error{
		"claim": claimErr, "records": recordsErr, "purge": purgeErr,
		"renew":    s.Renew(ctx, o, keystore.RenewParams{Lease: time.Nanosecond}),
		"complete": s.Complete(ctx, o, keystore.CompleteParams{Retention: time.Hour}),
		"release":  s.Release(ctx, o, keystore.ReleaseParams{How: keystore.Abandon}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", call, err)
		}
	}
	if recs := records(t, s, keystore.Query{}); len(recs) != 1 || recs[0].LeaseLeft <= 0 || recs[0].State != keystore.Running {
		t.Errorf("the records are %+v, want the one as it was", recs)
	}
}

package keystoretest

import (
	"bytes"
	"errors"
	"time"

	"github.com/idem-go/idem/keystore"
)

// settleFaults are faults in Renew, Complete and Release.
var settleFaults = []fault{
	{"renew of no row is success", "renew-fenced", func(f *faulty) {
		sound := f.renew
		f.renew = func(o keystore.Owner, p keystore.RenewParams) error { return unfenced(sound(o, p)) }
	}},
	{"complete of no row is success", "complete-fenced", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error { return unfenced(sound(o, p)) }
	}},
	{"release of no row is success", "release-fenced", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error { return unfenced(sound(o, p)) }
	}},
	{"unknown owner is success", "unknown-fenced", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			if _, ok := f.stored(o.ID); !ok {
				return nil
			}
			return sound(o, p)
		}
	}},
	{"token not compared", "nonce-and-token-fenced", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			if now := f.owner(o.ID); now.Nonce == o.Nonce {
				o = now
			}
			return sound(o, p)
		}
	}},
	{"fenced complete overwrites the result", "fenced-changes-nothing", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			err := sound(o, p)
			if errors.Is(err, keystore.ErrFenced) {
				_ = sound(f.owner(o.ID), p)
			}
			return err
		}
	}},
	{"release deletes another owner's claim", "fenced-changes-nothing", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			err := sound(o, p)
			if errors.Is(err, keystore.ErrFenced) {
				_ = sound(f.owner(o.ID), p)
			}
			return err
		}
	}},
	{"owner with a dead lease refused", "dead-owner-may", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			if r, ok := f.stored(o.ID); ok && r.State == keystore.Running && r.LeaseLeft <= 0 {
				return keystore.ErrFenced
			}
			return sound(o, p)
		}
	}},

	{"renew does not renew", "renew-extends", func(f *faulty) {
		sound := f.renew
		f.renew = func(o keystore.Owner, p keystore.RenewParams) error {
			p.Lease = 1
			return sound(o, p)
		}
	}},
	{"renew does not mark begun", "renew-begun", func(f *faulty) {
		sound := f.renew
		f.renew = func(o keystore.Owner, p keystore.RenewParams) error {
			p.Begun = false
			return sound(o, p)
		}
	}},

	{"repeated complete refused", "complete-repeated", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			if r, ok := f.stored(o.ID); ok && r.State == keystore.Done {
				return keystore.ErrFenced
			}
			return sound(o, p)
		}
	}},
	{"lease taken for retention", "retention-is-not-the-lease", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			r, _ := f.stored(o.ID)
			p.Retention = max(r.LeaseLeft, 1)
			return sound(o, p)
		}
	}},
	{"retention counted from the claim", "retention-from-completion", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			r, _ := f.stored(o.ID)
			p.Retention = max(p.Retention-r.Age, 1)
			return sound(o, p)
		}
	}},
	{"retention never ends", "retention-ends", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			p.Retention += time.Hour
			return sound(o, p)
		}
	}},
	{"result cut at a NUL", "bytes-exact", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			p.Result, _, _ = bytes.Cut(p.Result, []byte{0})
			return sound(o, p)
		}
	}},
	{"large result refused", "large-results", func(f *faulty) {
		sound := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			if len(p.Result) > 1<<20 {
				return keystore.ErrTooLarge
			}
			return sound(o, p)
		}
	}},

	{"generation not raised", "reject-raises-generation", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			if p.How == keystore.Reject {
				p.How = keystore.Forget
			}
			return sound(o, p)
		}
	}},
	{"generation raised by a repeat", "release-repeated", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			before, ok := f.stored(o.ID)
			err := sound(o, p)
			if ok && err == nil && before.State == keystore.Free && p.How == keystore.Reject {
				c, _ := f.take(before)
				_ = sound(c.Owner, p)
			}
			return err
		}
	}},
	{"another release counts as a repeat", "release-settles", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			err := sound(o, p)
			if r, ok := f.stored(o.ID); ok && r.State == keystore.Free && o == f.owner(o.ID) {
				return nil
			}
			return err
		}
	}},
	{"meta kept by a reject", "reject-clears-meta", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			if r, ok := f.stored(o.ID); ok && p.Meta == nil {
				p.Meta = r.Meta
			}
			return sound(o, p)
		}
	}},
	{"abandon leaves the lease", "abandon", func(f *faulty) {
		sound := f.release
		f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
			if p.How == keystore.Abandon {
				return f.renew(o, keystore.RenewParams{Lease: time.Hour})
			}
			return sound(o, p)
		}
	}},
}

// unfenced is the error of a store that does not look at the number of rows.
func unfenced(err error) error {
	if errors.Is(err, keystore.ErrFenced) {
		return nil
	}
	return err
}

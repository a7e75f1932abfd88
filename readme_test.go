package idem_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem"
)

// Order is what the README's program pays for.
type Order struct {
	ID    string
	Cents int64
}

// lossyProvider charges once per key, and loses its first reply.
type lossyProvider struct {
	mu   sync.Mutex
	done map[idem.Key]string
}

func (p *lossyProvider) Charge(_ context.Context, key idem.Key, o Order) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if receipt, ok := p.done[key]; ok {
		return receipt, nil
	}
	p.done = map[idem.Key]string{key: "receipt for " + o.ID}
	return "", idem.Unknown(errors.New("connection reset by peer"))
}

func (p *lossyProvider) Charges() int { return len(p.done) }

// Example is the program in the README.
func Example() {
	ctx, provider := context.Background(), &lossyProvider{}

	client, err := idem.New(idem.Config{Scope: "shop/charge"})
	if err != nil {
		log.Fatal(err)
	}
	charge := idem.Wrap(client, func(o Order) idem.Intent { return idem.Intent{ID: o.ID} }, provider.Charge)

	// The provider's first reply is lost after it has charged.
	receipt, err := charge(ctx, Order{ID: "order-17", Cents: 4200})
	fmt.Println(receipt, err)
	fmt.Println("charges:", provider.Charges())
	// Output:
	// receipt for order-17 <nil>
	// charges: 1
}

// The README shows the program and the output that Example checks.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, source := readFile(t, "README.md"), readFile(t, "readme_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```\n\n```\n(.*?)```").FindStringSubmatch(readme)
	if blocks == nil {
		t.Fatal("the README has no block of Go with one of output behind it")
	}
	program := "\t" + strings.ReplaceAll(strings.TrimSpace(blocks[1]), "\n", "\n\t")
	if program = strings.ReplaceAll(program, "\n\t\n", "\n\n"); !strings.Contains(source, program) {
		t.Errorf("the README's program is not in Example:\n%s", program)
	}
	output := "\t// " + strings.ReplaceAll(strings.TrimSpace(blocks[2]), "\n", "\n\t// ")
	if !strings.Contains(source, output) {
		t.Errorf("the README's output is not that of Example:\n%s", output)
	}
}

// Every test that docs/guarantees.md names exists.
func TestGuaranteesNameTests(t *testing.T) {
	doc := readFile(t, "docs/guarantees.md")
	cited := regexp.MustCompile("`([a-z/]*)\\.?(Test[A-Za-z0-9]+|Fuzz[A-Za-z0-9]+)`").FindAllStringSubmatch(doc, -1)
	if len(cited) < 30 {
		t.Fatalf("docs/guarantees.md names %d tests; the pattern no longer fits", len(cited))
	}
	for _, c := range cited {
		dir := c[1]
		if dir == "" {
			dir = "."
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		found := false
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), "_test.go") {
				found = found || strings.Contains(readFile(t, dir+"/"+e.Name()), "func "+c[2]+"(")
			}
		}
		if !found {
			t.Errorf("docs/guarantees.md names %s, which does not exist in %s", c[2], dir)
		}
	}
}

// docs/operations.md says of every event what it means.
func TestOperationsNameEvents(t *testing.T) {
	doc := readFile(t, "docs/operations.md")
	events := regexp.MustCompile(`(?m)^\tEvent\w+ += "([a-z-]+)"`).FindAllStringSubmatch(readFile(t, "observe.go"), -1)
	if len(events) < 11 {
		t.Fatalf("observe.go has %d events; the pattern no longer fits", len(events))
	}
	for _, e := range events {
		if !strings.Contains(doc, "\n| `"+e[1]+"` | ") {
			t.Errorf("docs/operations.md has no row for the event %s", e[1])
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

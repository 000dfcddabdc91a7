package places

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

var add = flag.Bool("add", false, "write golden files that are missing")

var asked = time.Unix(1_700_000_000, 0)

func examplePlace(n byte) Place {
	return Place{CN: netip.AddrFrom4([4]byte{10, 1, 0, n}), Node: log.UUID{0xcc, 15: n}, Seq: 1000 + log.Seq(n), VNets: []uint32{0, 7, 1<<24 - 1}}
}

// examples has one of each format.
func examples() (File, Question, Answer) {
	v6 := examplePlace(2)
	v6.CN, v6.VNets = netip.MustParseAddr("fd00::2"), nil
	f := File{Server: "server-1", Cluster: log.UUID{0xaa}, Seq: 1 << 40, Chain: log.ChainPrefix{1, 2, 3, 4, 5, 6, 7, 8}, Places: []Place{examplePlace(1), v6}}
	q := Question{Epoch: 1<<63 | 5, Since: 300, Again: []Again{{CN: v6.CN, From: 9, To: 300}}}
	a := Answer{
		Cluster: log.UUID{0xaa}, Epoch: 1<<63 | 5, Until: 301,
		Claims: []Claim{
			{Place: examplePlace(1), Deliveries: Deliveries{{Newest: 3}, {Newest: 900, At: asked.Add(-5 * time.Second)}}},
			{Place: v6},
		},
		Acks: []Acks{{CN: v6.CN, IDs: []log.UUID{{1}, {2}}}},
	}
	return f, q, a
}

// TestGolden: the bytes of each format are those of the golden files. A server reads a
// file that an older one wrote, and asks servers of another version.
func TestGolden(t *testing.T) {
	f, q, a := examples()
	for name, got := range map[string][]byte{"file": f.Encode(), "question": q.Encode(), "answer": a.Encode(asked)} {
		file := filepath.Join("testdata", "golden", name)
		want, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && *add {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x, %v", name, got, want, err)
		}
	}
	if g, err := DecodeFile(f.Encode()); err != nil || !reflect.DeepEqual(g, f) {
		t.Errorf("file read as %+v, %v", g, err)
	}
	if p, err := DecodeQuestion(q.Encode()); err != nil || !reflect.DeepEqual(p, q) {
		t.Errorf("question read as %+v, %v", p, err)
	}
	b, err := DecodeAnswer(a.Encode(asked), asked)
	if err != nil || len(b.Claims) != 2 || !reflect.DeepEqual(b.Acks, a.Acks) || !reflect.DeepEqual(b.Claims[0].Place, a.Claims[0].Place) {
		t.Fatalf("answer read as %+v, %v", b, err)
	}
	if d := b.Claims[0].Deliveries; !d[0].At.IsZero() || d[1].At.After(asked.Add(-5*time.Second)) || d[1].At.Before(asked.Add(-6*time.Second)) {
		t.Errorf("times of deliveries read as %v", d)
	}
}

// TestDamaged: bytes that are cut, changed, or of another format are refused.
func TestDamaged(t *testing.T) {
	f, q, a := examples()
	for name, b := range map[string][]byte{"file": f.Encode(), "question": q.Encode(), "answer": a.Encode(asked)} {
		for i := range b {
			changed := bytes.Clone(b)
			changed[i]++
			for _, damaged := range [][]byte{changed, b[:i]} {
				_, err1 := DecodeFile(damaged)
				_, err2 := DecodeQuestion(damaged)
				_, err3 := DecodeAnswer(damaged, asked)
				if err1 == nil || err2 == nil || err3 == nil {
					t.Fatalf("%s, damaged at %d of %d bytes, is read", name, i, len(b))
				}
			}
		}
	}
	if long := (&File{Server: strings.Repeat("x", 300)}).Encode(); len(long) > 400 {
		t.Error("the name of a server is not cut")
	} else if _, err := DecodeFile(long); err != nil {
		t.Errorf("with a long name: %v", err)
	}
}

// FuzzDecode: whatever a file has, or another server sends, with a right checksum: it is
// refused, or written and read again as the same; and never more memory than it has
// bytes, some times over.
func FuzzDecode(f *testing.F) {
	file, question, answer := examples()
	for kind, b := range [][]byte{file.Encode(), question.Encode(), answer.Encode(asked)} {
		f.Add(byte(kind), b[len([]string{formatFile, formatQuestion, formatAnswer}[kind]):len(b)-4])
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		switch kind % 3 {
		case 0:
			v, err := DecodeFile(seal(append([]byte(formatFile), body...)))
			if err != nil {
				return
			}
			if again, err := DecodeFile(v.Encode()); err != nil || !reflect.DeepEqual(again, v) {
				t.Fatalf("%+v, %v; want %+v", again, err, v)
			}
		case 1:
			v, err := DecodeQuestion(seal(append([]byte(formatQuestion), body...)))
			if err != nil {
				return
			}
			if again, err := DecodeQuestion(v.Encode()); err != nil || !reflect.DeepEqual(again, v) {
				t.Fatalf("%+v, %v; want %+v", again, err, v)
			}
		case 2:
			v, err := DecodeAnswer(seal(append([]byte(formatAnswer), body...)), asked)
			if err != nil {
				return
			}
			again, err := DecodeAnswer(v.Encode(asked), asked)
			if err != nil || len(again.Claims) != len(v.Claims) || !reflect.DeepEqual(again.Acks, v.Acks) {
				t.Fatalf("%+v, %v; want %+v", again, err, v)
			}
			for i := range v.Claims {
				for j, d := range again.Claims[i].Deliveries {
					if was := v.Claims[i].Deliveries[j]; d.Newest != was.Newest || d.At.After(was.At) || d.At.IsZero() != was.At.IsZero() {
						t.Fatalf("delivery %+v; want %+v", d, was)
					}
				}
			}
		}
	})
}

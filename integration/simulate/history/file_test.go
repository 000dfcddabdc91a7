package history

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var add = flag.Bool("add", false, "write golden files that are missing")

// every is a history with each kind of fault once.
func every() File {
	h := small()
	h.TLS, h.WAL, h.Replicas = true, true, 1
	for i, k := range Kinds() {
		form := forms[k]
		f := Fault{At: time.Duration(i) * 1750 * ms, Kind: k, Seed: uint64(i), N: form.n.most}
		switch {
		case form.on&onAgent != 0 && k != Cut:
			f.On = "cn2"
		case form.on&onServer != 0 && k != Restore:
			f.On = "s3"
		case form.on == onReplica:
			f.On = "n1"
		}
		if form.to {
			f.To = "c1"
		}
		if form.lasts {
			f.For = 10 * ms
		}
		h.Faults = append(h.Faults, f)
	}
	h.Duration = 2 * time.Minute
	for i := range h.Faults {
		h.Faults[i].At = time.Duration(i) * 3 * time.Second
		if h.Faults[i].Kind == Restore { // after the backup, which stands behind it in the alphabet
			h.Faults[i].At = 100 * time.Second
		}
	}
	return File{Why: "every kind of fault once", Failures: []string{"nothing"}, Removed: []string{"fault 7"}, History: ordered(h)}
}

func ordered(h History) History {
	for i := range h.Faults {
		for j := i; j > 0 && h.Faults[j].At < h.Faults[j-1].At; j-- {
			h.Faults[j], h.Faults[j-1] = h.Faults[j-1], h.Faults[j]
		}
	}
	return h
}

// The form of a file does not change: what was kept once must be read by every later version.
func TestGoldenFile(t *testing.T) {
	path := filepath.Join("testdata", "every.json")
	text, err := every().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); os.IsNotExist(err) && *add {
		if err := Write(path, every()); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(want) {
		t.Errorf("%s has another form than\n%s", path, text)
	}
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, every()) {
		t.Errorf("read %v, want %v", f.History, every().History)
	}
}

// The histories of the first seeds do not change by accident: a seed in a report would mean
// another history. Who changes Generate on purpose makes the file anew.
func TestGoldenSeeds(t *testing.T) {
	path := filepath.Join("testdata", "seeds.txt")
	var b strings.Builder
	for seed := range uint64(3) {
		for _, p := range []Profile{Usual(), Wide(), Usual().Lasting(20 * sec)} {
			b.WriteString(Generate(seed, p).String() + "\n\n")
		}
	}
	if _, err := os.Stat(path); os.IsNotExist(err) && *add {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the histories of the first seeds are others now; if that is meant, delete %s and run go test -add\n%s", path, b.String())
	}
}

// What is written is read as it was.
func TestFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := File{Why: rapid.StringN(1, 20, -1).Filter(func(s string) bool { return strings.ToValidUTF8(s, "") == s }).Draw(t, "why")}
		f.History = Generate(rapid.Uint64().Draw(t, "seed"), Usual())
		text, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !reflect.DeepEqual(f, got) {
			t.Fatalf("wrote\n%v\nand read\n%v", f.History, got.History)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	good := `{"why":"w","history":{"seed":1,"servers":3,"agents":5,"clients":2,"duration":"60s","faults":[{"at":"1s","for":"2s","kind":"kill","on":"s1"}]}}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, says string }{
		{`"why":"w",`, ``, `no "why"; say what the history shows`},
		{`"why"`, `"wy"`, `unknown field "wy"`},
		{`"servers"`, `"server"`, `unknown field "server"`},
		{`"on"`, `"onto"`, `unknown field "onto"`},
		{`"1s"`, `"soon"`, `"soon" is no time; write it as "1.5s" or "200ms"`},
		{`"1s"`, `1000`, `cannot unmarshal number`},
		{`"s1"`, `"s9"`, `fault 1 (at 1s: kill on s9, for 2s): on: there is no s9`},
		{`}]}}`, `}]}}{}`, "there is more after its end"},
		{good, ``, "EOF"},
		{good, strings.Repeat(" ", maxFile+1), "more than 1048576"},
	} {
		_, err := Decode([]byte(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s for %s: %v, want %q", c.new, c.old, err, c.says)
		}
	}
}

func TestReadSaysWhichFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v does not name %s", err, path)
	}
}

// Any bytes are a history that can be run, and written again, or an error.
func FuzzDecode(f *testing.F) {
	text, err := every().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Decode(text)
		if err != nil {
			return
		}
		again, err := file.Encode()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		same, err := Decode(again)
		if err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
		if !reflect.DeepEqual(file.History, same.History) {
			t.Fatalf("read\n%v\nthen\n%v", file.History, same.History)
		}
		_ = file.History.String()
	})
}

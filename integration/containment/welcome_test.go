package containment

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/feed"
)

// beforeKnows is the last revision whose feed has no Welcome.Knows.
const beforeKnows = "019b893"

// oldDecoder is a program in the tree of an earlier revision: it prints what that
// revision's package makes of the frames on its standard input.
const oldDecoder = `package main

import ("fmt"; "os"; "rutter/log/feed")

func main() {
	r := feed.NewReader(os.Stdin)
	for {
		f, err := r.Next()
		if err != nil { return }
		m, err := feed.Decode(f)
		fmt.Printf("%T %+v %v\n", m, m, err)
	}
}
`

// TestOldAgentReadsWelcome: the package of the revision before Welcome.Knows, built from
// its own sources, reads a welcome that has it as one that does not.
func TestOldAgentReadsWelcome(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("builds another revision: RUTTER_LONG=1")
	}
	dir := t.TempDir()
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", `git -C ../.. archive "$1" go.mod go.sum log varp | tar -x -C "$2" && mkdir "$2/old"`, "bash", beforeKnows, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "old", "main.go"), []byte(oldDecoder), 0o600); err != nil {
		t.Fatal(err)
	}
	head := log.Cursor{Cluster: log.UUID{1}, Seq: 47, Chain: log.ChainPrefix{1, 2}}
	var frames []byte
	for _, knows := range []uint32{0, log.FeatureVersion} {
		var err error
		if frames, err = feed.Append(frames, &feed.Welcome{Version: feed.Version, Head: head, Knows: knows}); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("go", "run", "./old")
	run.Dir, run.Stdin = dir, bytes.NewReader(frames)
	out, err := run.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 2 || lines[0] != lines[1] || !strings.HasPrefix(lines[0], "*feed.Welcome &{Version:") || !strings.HasSuffix(lines[0], "<nil>") {
		t.Fatalf("%v\n%s", err, out)
	}
}

package cookbook

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
)

// declarePage is the page about documents, from this package.
const declarePage = "../../docs/declare.md"

// Each command of the page prints what the page says, one after the other.
func TestDeclarePage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	server := start(t, ctx, "--plain").URL
	api, err := client.New(client.Config{Servers: []string{server}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	await(t, ctx, api)
	b, err := os.ReadFile(declarePage)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	written, dir := text, t.TempDir()
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		command, want := b[1], b[2]
		if begin, rest, is := strings.Cut(want, "\nEND\n"); is { // a document within the command
			command, want = command+"\n"+begin+"\nEND\n", rest
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(rutter)+":"+os.Getenv("PATH"), "RUTTER_SERVER="+server)
		out, err := cmd.CombinedOutput()
		got := string(out)
		if err != nil {
			got += fmt.Sprintf("[%v]\n", err)
		}
		if os.Getenv("RUTTER_WRITE") != "" {
			written = strings.Replace(written, b[0], strings.TrimSuffix(b[0], want+"```")+got+"```", 1)
		} else if masked(got) != masked(want) {
			t.Errorf("$ %s\nprints\n%sthe page says\n%s(RUTTER_WRITE=1 writes it anew)", command, got, want)
		}
	}
	if written != text {
		if err := os.WriteFile(declarePage, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

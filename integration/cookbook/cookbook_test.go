package cookbook

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/integration/bench/devrun"
	"rutter/integration/rig"
)

var rutter string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &rutter)) }

// page is the cookbook, from this package.
const page = "../../docs/cookbook.md"

// questions is how many the page answers.
const questions = 12

// story is what happened before the operator was woken.
var story = []struct{ path, body string }{
	{"/networks/0e70de36-a40b-4ac0-9429-819f5ff82011", `{"gateway": "10.21.12.254"}`},
	{"/vms/5595d88c-6e4d-4bda-b58e-97dd02e30002", `{"state": "stopped"}`},
	{"/vms/5595d88c-6e4d-4bda-b58e-97dd02e30003", `{"alias": "blue2-old"}`},
}

// block is one console block of the page: a command, and what it prints.
var block = regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```")

func TestCommandsPrintWhatThePageSays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	server := dev(t, ctx)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	asked, _, _ := strings.Cut(string(text), circleTitle)
	blocks := block.FindAllStringSubmatch(asked, -1)
	if n := strings.Count(asked, "\n## "); n != questions || len(blocks) < questions {
		t.Errorf("the page has %d questions and %d commands, want %d, each with a command", n, len(blocks), questions)
	}
	written := string(text)
	for _, b := range blocks {
		cmd := exec.CommandContext(ctx, "sh", "-c", b[1])
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(rutter)+":"+os.Getenv("PATH"), "RUTTER_SERVER="+server)
		out, err := cmd.CombinedOutput()
		got := string(out)
		if err != nil {
			got += fmt.Sprintf("[%v]\n", err)
		}
		if os.Getenv("RUTTER_WRITE") != "" {
			written = strings.Replace(written, b[0], "```console\n$ "+b[1]+"\n"+got+"```", 1)
		} else if masked(got) != masked(b[2]) {
			t.Errorf("$ %s\nprints\n%sthe page says\n%s(RUTTER_WRITE=1 writes it anew)", b[1], got, b[2])
		}
	}
	if os.Getenv("RUTTER_WRITE") != "" && written != string(text) {
		if err := os.WriteFile(page, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	volatile = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-fA-FxTZµ:.,/-]*(ms|s|KiB|MiB|GiB|h|m)?\b`)
	leaders  = regexp.MustCompile(`\b(Leader|Follower|leader|follower|voter|s#)\b`)
	sizes    = regexp.MustCompile(`\b[KMGT]iB\b`)
	numbers  = regexp.MustCompile(`[# ]*#[# ]*`) // side by side, and the bars that show them
	spaces   = regexp.MustCompile(`[ \t+-]+`)    // and signs of clocks that are off
)

// masked is a text without what differs from run to run: numbers, ids and times,
// who leads, the width of columns and the length of bars. Lines of equal form count once.
func masked(text string) string {
	text = volatile.ReplaceAllString(text, "#")
	text = leaders.ReplaceAllString(text, "server")
	text = sizes.ReplaceAllString(text, "")
	text = spaces.ReplaceAllString(text, " ")
	text = numbers.ReplaceAllString(text, " # ")
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// start runs `rutter dev`, which ends with the test.
func start(t *testing.T, ctx context.Context, flags ...string) *devrun.Process {
	t.Helper()
	return rig.Dev(t, ctx, rutter, flags...)
}

// dev runs `rutter dev`, lets the story happen, and waits until it is everywhere.
func dev(t *testing.T, ctx context.Context) (server string) {
	t.Helper()
	server = start(t, ctx, "--plain").URL
	api, err := client.New(client.Config{Servers: []string{server}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for _, s := range story {
		if _, err := api.Update(ctx, s.path, []byte(s.body), ""); err != nil {
			t.Fatal(err)
		}
	}
	await(t, ctx, api)
	return server
}

// await waits until both compute nodes run and have everything.
func await(t *testing.T, ctx context.Context, api *client.Client) {
	t.Helper()
	for {
		list, err := api.List(ctx, "/servers", nil)
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, s := range list {
			if s["status"] == "running" {
				running++
			}
		}
		if v, err := api.Wait(ctx, client.Barrier{Timeout: time.Second}); err == nil && v.Done && running == 2 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the compute nodes do not run")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

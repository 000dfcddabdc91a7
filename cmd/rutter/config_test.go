package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rutter/cmd/rutter/term"
)

func configIn(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rutter.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lineOf returns the line of a key in the output of config print.
func lineOf(t *testing.T, output, key string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, key+" =") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	t.Fatalf("no %q in\n%s", key, output)
	return ""
}

// A flag wins over a variable, that over the file, that over the default.
func TestPrecedence(t *testing.T) {
	path := configIn(t, "[server]\nid = \"file\"\ndata = \"/file\"\nlisten = \"127.0.0.1:1\"\n")
	t.Setenv("RUTTER_LISTEN", "127.0.0.1:2")
	t.Setenv("RUTTER_DATA", "/variable")
	code, out, errs := rutter(t, "config", "print", "server", "--origin", "--config", path, "--", "--listen", "127.0.0.1:3")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for key, want := range map[string]string{
		"id":     `id = "file" # file ` + path,
		"data":   `data = "/variable" # variable RUTTER_DATA`,
		"listen": `listen = "127.0.0.1:3" # flag --listen`,
		"raft":   `raft = "127.0.0.1:7421" # default`,
	} {
		if got := lineOf(t, out, key); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// What config print says is a file that gives the same settings.
func TestConfigRoundTrip(t *testing.T) {
	path := configIn(t, `[server]
id = "s1"
insecure = true
peers = ["s1=10.0.0.1:7421", "s2=10.0.0.2:7421"]
listen = "10.0.0.1:7420"
raft = "10.0.0.1:7421"
[agent]
cn = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
servers = ["http://10.0.0.1:7420", "http://10.0.0.2:7420"]
[varpd]
address = ["10.0.0.1", "[fd00::1]:2296"]
[client]
server = ["http://10.0.0.1:7420", "http://10.0.0.2:7420"]
output = "json"
`)
	_, first, errs := rutter(t, "config", "print", "--config", path, "-o", "table")
	again := configIn(t, first)
	if code, out, errs := rutter(t, "config", "check", again); code != 0 || strings.Count(out, "is right") != 5 {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if _, second, _ := rutter(t, "config", "print", "--config", again, "-o", "table"); second != first {
		t.Errorf("got\n%s\nwant\n%s\n%s", second, first, errs)
	}
	if got := lineOf(t, first, "server"); got != `server = ["http://10.0.0.1:7420", "http://10.0.0.2:7420"]` {
		t.Errorf("got %s", got)
	}
}

// A key of the file that has no effect is refused, with the nearest known word.
func TestConfigRefused(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"[server]\nlistn = \"x\"\n", `no key "listn" (did you mean "listen"?)`},
		{"[sever]\nid = \"x\"\n", `"sever" is no section (did you mean "server"?)`},
		{"id = \"x\"\n", `"id" is no section`},
		{"server = \"x\"\n", "is a section, and no key"},
		{"[server]\nid = 2020-01-01\n", "want a string, a number"},
		{"[server]\njoin = [1]\n", "want a list of strings"},
		{"[server\n", "rutter.toml:2: "},
		{"[server]\nid = \"s1\"\ninsecure = \"perhaps\"\n", "[server] insecure"},
		{"[server]\nid = \"s1\"\nlisten = \"0.0.0.0:7420\"\n", "say --insecure"},
		{"[server]\nlisten = \"127.0.0.1:7420\"\n", "--id is missing"},
		{"[agent]\ncn = \"1\"\n", "want 36 characters"},
		{"[client]\nserver = [\"10.0.0.1\"]\n", "want a base URL"},
		{"[client]\noutput = \"xml\"\n", "want table, json or ndjson"},
	} {
		code, _, errs := rutter(t, "config", "check", configIn(t, test.text))
		if code != term.ExitUsage || !strings.Contains(errs, test.want) {
			t.Errorf("%q: exit code %d, %q; want %d and %q", test.text, code, errs, term.ExitUsage, test.want)
		}
	}
}

// The commands of an operator take their servers from the file as well, and
// those that start processes of their own take nothing from it.
func TestConfigOfClients(t *testing.T) {
	path := configIn(t, "[client]\nserver = [\"nonsense\"]\n")
	t.Setenv("RUTTER_CONFIG", path)
	for _, args := range []string{"cluster status", "network list", "snapshot save x", "log tail"} {
		if code, _, errs := rutter(t, strings.Fields(args)...); code != term.ExitUsage || !strings.Contains(errs, "nonsense") {
			t.Errorf("%s: exit code %d, %q; want its server from the file", args, code, errs)
		}
	}
	if code, _, errs := rutter(t, "version"); code != 0 {
		t.Errorf("version: exit code %d, %q", code, errs)
	}
	if err := term.ForgetVariables(); err != nil || os.Getenv("RUTTER_CONFIG") != "" {
		t.Errorf("RUTTER_CONFIG is still %q, %v", os.Getenv("RUTTER_CONFIG"), err)
	}
}

func TestUnknownVariable(t *testing.T) {
	t.Setenv("RUTTER_LISTN", "x")
	if _, _, errs := rutter(t, "server"); !strings.Contains(errs, `RUTTER_LISTN means nothing (did you mean "RUTTER_LISTEN"?)`) {
		t.Errorf("got %q", errs)
	}
}

// The completions are run by the shells that are here.
func TestCompletion(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": `source /dev/stdin; complete -p rutter >/dev/null; COMP_WORDS=(rutter %s); COMP_CWORD=%d; _rutter; printf '%%s\n' "${COMPREPLY[@]}"`,
		"zsh":  "",
		"fish": "",
	} {
		code, text, errs := rutter(t, "completion", shell)
		if code != 0 || !strings.Contains(text, "rutter") || !strings.Contains(text, "promote") {
			t.Errorf("%s: exit code %d, %q", shell, code, errs)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here to try it", shell)
			continue
		}
		if script == "" {
			cmd := exec.Command(path, "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v: %s", shell, err, out)
			}
			continue
		}
		for _, try := range []struct {
			line []string
			want string
		}{
			{[]string{"clus"}, "cluster"},
			{[]string{"cluster", "pro"}, "promote"},
			{[]string{"cluster", "promote", "--wa"}, "--wait"},
			{[]string{"server", "--id", "s1", "--lis"}, "--listen"},
			{[]string{"network", "list", "--tls-d"}, "--tls-dir"},
			{[]string{"cn", "sessions", "--tls-ce"}, "--tls-cert"},
		} {
			cmd := exec.Command(path, "-c", fmt.Sprintf(script, strings.Join(try.line, " "), len(try.line)))
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(" "+strings.Join(strings.Fields(string(out)), " ")+" ", " "+try.want+" ") {
				t.Errorf("%s: %v completes to %q, %v; want %s", shell, try.line, out, err, try.want)
			}
		}
	}
}

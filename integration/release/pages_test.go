package release

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A manual page is there for each command, man shows it without a warning, and what it
// refers to is there.
func TestPages(t *testing.T) {
	dir := filepath.Join(made(t).unpacked(t), "usr/share/man/man1")
	files, err := filepath.Glob(filepath.Join(dir, "*.1.gz"))
	if err != nil || len(files) < 30 {
		t.Fatalf("pages are %v, %v", files, err)
	}
	// The words that bash completes first are the commands.
	words := regexp.MustCompile(`(?m)^\t""\) echo "(.*)" ;;$`).FindSubmatch(read(t, dir, "../../bash-completion/completions/rutter"))
	if words == nil {
		t.Fatal("the completion has no commands")
	}
	commands := 0
	for word := range strings.FieldsSeq(string(words[1])) {
		if !strings.HasPrefix(word, "-") {
			commands++
			read(t, dir, "rutter-"+word+".1.gz")
		}
	}
	if len(files) != commands+1 {
		t.Errorf("%d pages for %d commands and the program", len(files), commands)
	}
	refers := regexp.MustCompile(`(?m)^\.BR (\S+) \(1\)`)
	for _, file := range files {
		text := string(unzipped(t, read(t, file)))
		for _, name := range refers.FindAllStringSubmatch(text, -1) {
			read(t, dir, strings.ReplaceAll(name[1], `\-`, "-")+".1.gz")
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"} {
			if !strings.Contains(text, ".SH \""+section+"\"\n") {
				t.Errorf("%s has no section %s", filepath.Base(file), section)
			}
		}
	}
	server := string(unzipped(t, read(t, dir, "rutter-server.1.gz")))
	for _, want := range []string{".SH \"EXAMPLES\"", ".SH \"FILES\"", ".SH \"ENVIRONMENT\"", ".B RUTTER_ID\n", `.I /\:var/\:lib/\:rutter`, `\fB\-\-tls\-dir\fR \fIFOLDER\fR`} {
		if !strings.Contains(server, want) {
			t.Errorf("the page of rutter server has no %q", want)
		}
	}
	if strings.Contains(server, "drill") {
		t.Error("the page of rutter server shows hidden flags")
	}
	need(t, "man")
	man := exec.Command("man", append([]string{"--warnings", "-E", "UTF-8", "-l", "-Tutf8"}, files...)...)
	man.Env = append(man.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "MANPAGER=cat")
	var warnings strings.Builder
	man.Stderr = &warnings
	shown, err := man.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("man: %v\n%s", err, warnings.String())
	}
	if !strings.Contains(string(shown), "rutter nic create") || !strings.Contains(string(shown), "curl") && !strings.Contains(string(shown), "EXAMPLES") {
		t.Error("man shows no commands")
	}
}

// The completions are parsed by the shells that are here.
func TestCompletionsParse(t *testing.T) {
	dir := filepath.Join(made(t).unpacked(t), "usr/share")
	ran := 0
	for shell, file := range map[string]string{
		"bash": "bash-completion/completions/rutter", "zsh": "zsh/vendor-completions/_rutter", "fish": "fish/vendor_completions.d/rutter.fish",
	} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("no %s here to try it", shell)
			continue
		}
		ran++
		printed(t, shell, "-n", filepath.Join(dir, file))
	}
	if ran == 0 {
		t.Skip("no shell here that completes")
	}
}

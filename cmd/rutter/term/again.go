package term

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/log"
)

// connecting are the flags that say which servers a command asks, with the variables that
// are flags too.
var connecting = []struct {
	name      string
	variables []string
}{
	{"server", []string{"RUTTER_SERVER", "RUTTER_SERVERS"}},
	{"tls-dir", []string{"RUTTER_TLS_DIR"}},
	{"tls-cert", []string{"RUTTER_TLS_CERT"}},
	{"tls-key", []string{"RUTTER_TLS_KEY"}},
	{"tls-ca", []string{"RUTTER_TLS_CA"}},
	{"config", []string{"RUTTER_CONFIG"}},
}

// Again returns a command line with those flags of this command behind it that say which
// servers are asked. A shell that has the same variables runs it against the same servers.
func Again(c *cli.Context, command string) string {
	for _, flag := range connecting {
		if !c.IsSet(flag.name) || slices.ContainsFunc(flag.variables, func(name string) bool { return os.Getenv(name) != "" }) && !onCommandLine(flag.name) {
			continue
		}
		values := []string{c.String(flag.name)}
		if flag.name == "server" {
			values = c.StringSlice(flag.name)
		}
		name := "--" + flag.name
		if flag.name == "server" {
			name = "-s"
		}
		for _, value := range values {
			if value == "" {
				continue
			}
			command += " " + name + " " + quoted(value)
		}
	}
	return command
}

// onCommandLine reports whether a flag stands among the arguments of this process.
func onCommandLine(name string) bool {
	return slices.ContainsFunc(os.Args[1:], func(arg string) bool {
		return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=") || name == "server" && (arg == "-s" || strings.HasPrefix(arg, "-s="))
	})
}

// quoted is a text as a shell reads it again.
func quoted(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,=-[]") == "" && !strings.ContainsAny(text, "[]") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Seqs are the entries from First to Last.
type Seqs struct{ First, Last log.Seq }

// TakeBack returns the arguments of rutter that take entries back: none besides those of
// ranges, which are in order.
func TakeBack(ranges []Seqs) string {
	var joined []Seqs
	for _, r := range ranges {
		if n := len(joined) - 1; n >= 0 && joined[n].Last+1 == r.First {
			joined[n].Last = r.Last
			continue
		}
		joined = append(joined, r)
	}
	if len(joined) == 1 && joined[0].First < joined[0].Last {
		return fmt.Sprintf("rutter log revert --from %d --until %d", joined[0].First, joined[0].Last)
	}
	var texts []string
	for _, r := range joined {
		text := r.First.String()
		if r.Last > r.First {
			text += "-" + r.Last.String()
		}
		texts = append(texts, text)
	}
	return "rutter log revert " + strings.Join(texts, ",")
}

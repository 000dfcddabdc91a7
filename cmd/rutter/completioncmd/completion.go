package completioncmd

import (
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// Command is rutter completion. It prints a shell's completion of the commands that
// commands returns.
func Command(commands func() []*cli.Command) *cli.Command {
	shell := func(name, usage, how string, write func(io.Writer, []*cli.Command)) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, Description: term.Examples(how),
			Action: func(c *cli.Context) error {
				if err := term.NoArguments(c); err != nil {
					return err
				}
				write(c.App.Writer, commands())
				return nil
			},
		}
	}
	return &cli.Command{
		Name: "completion", Usage: "completion for a shell, of commands and flags", Category: "Operating",
		Description: term.Examples(". <(rutter completion bash)", "rutter completion fish > ~/.config/fish/completions/rutter.fish"),
		Subcommands: []*cli.Command{
			shell("bash", "for bash", "rutter completion bash > /etc/bash_completion.d/rutter", writeBash),
			shell("zsh", "for zsh", "rutter completion zsh > /usr/local/share/zsh/site-functions/_rutter", writeZsh),
			shell("fish", "for fish", "rutter completion fish > ~/.config/fish/completions/rutter.fish", writeFish),
		},
	}
}

// word is a word that may come at a place of a command line.
type word struct{ text, usage string }

// eachCommand calls fn for every command with the words that may follow it, its
// parents first. path is "" for the program itself.
func eachCommand(commands []*cli.Command, path string, flags []cli.Flag, fn func(path string, words []word)) {
	var words []word
	for _, c := range commands {
		if !c.Hidden {
			words = append(words, word{c.Name, c.Usage})
		}
	}
	for _, f := range flags {
		if visible, ok := f.(cli.VisibleFlag); ok && !visible.IsVisible() {
			continue
		}
		usage := ""
		if documented, ok := f.(cli.DocGenerationFlag); ok {
			usage = strings.ReplaceAll(documented.GetUsage(), "`", "")
		}
		words = append(words, word{"--" + f.Names()[0], usage})
	}
	if path == "" {
		words = append(words, word{"--version", "print this program's version"})
	}
	fn(path, append(words, word{"--help", "show help"}))
	for _, c := range commands {
		eachCommand(c.Subcommands, strings.TrimSpace(path+" "+c.Name), c.Flags, fn)
	}
}

// writeBash prints a function that looks the words before the cursor up; flags
// and their values are skipped to find the command. Files are completed where
// nothing else fits.
func writeBash(w io.Writer, commands []*cli.Command) {
	writeFunction(w, commands)
	output.Print(w, `_rutter() {
	local word path="" next cur="${COMP_WORDS[COMP_CWORD]}"
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		next="${path:+$path }$word"
		[ -n "$(_rutter_words "$next")" ] && path="$next"
	done
	COMPREPLY=($(compgen -W "$(_rutter_words "$path")" -- "$cur"))
}
complete -o bashdefault -o default -F _rutter rutter
`)
}

// writeFunction prints the table of words as a function of both bash and zsh.
func writeFunction(w io.Writer, commands []*cli.Command) {
	output.Print(w, "_rutter_words() {\n\tcase \"$1\" in\n")
	eachCommand(commands, "", nil, func(path string, words []word) {
		texts := make([]string, len(words))
		for i, word := range words {
			texts[i] = word.text
		}
		output.Printf(w, "\t%q) echo %q ;;\n", path, strings.Join(texts, " "))
	})
	output.Print(w, "\tesac\n}\n")
}

func writeZsh(w io.Writer, commands []*cli.Command) {
	output.Print(w, "#compdef rutter\n")
	writeFunction(w, commands)
	output.Print(w, `_rutter() {
	local word next at=""
	for word in "${words[@]:1:$((CURRENT-2))}"; do
		next="${at:+$at }$word"
		[ -n "$(_rutter_words "$next")" ] && at="$next"
	done
	compadd -- ${=$(_rutter_words "$at")} || _files
}
if [ "$funcstack[1]" = "_rutter" ]; then _rutter "$@"; else compdef _rutter rutter; fi
`)
}

func writeFish(w io.Writer, commands []*cli.Command) {
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	eachCommand(commands, "", nil, func(path string, words []word) {
		condition := "__fish_use_subcommand"
		if path != "" {
			parts := strings.Fields(path)
			for i, part := range parts {
				parts[i] = "__fish_seen_subcommand_from " + part
			}
			condition = strings.Join(parts, "; and ")
		}
		for _, word := range words {
			if name, isFlag := strings.CutPrefix(word.text, "--"); isFlag {
				output.Printf(w, "complete -c rutter -n %s -l %s -d %s\n", quote(condition), name, quote(word.usage))
				continue
			}
			output.Printf(w, "complete -c rutter -f -n %s -a %s -d %s\n", quote(condition), word.text, quote(word.usage))
		}
	})
}

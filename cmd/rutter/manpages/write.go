package manpages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// documents is where packages put the documentation.
const documents = "/usr/share/doc/rutter"

// writer makes one page, in the language of man(7).
type writer struct{ lines []string }

// begin begins a page.
func (m manual) begin(name, usage string) *writer {
	w := &writer{}
	w.line(fmt.Sprintf(".TH %s 1 %s %s %s", quoted(strings.ToUpper(name)), quoted(m.date), quoted("Rutter"), quoted("Rutter manual")))
	// Lines are not stretched to the margin, and words not divided: they are names.
	w.line(".ad l")
	w.line(".nr HY 0")
	w.line(".nh")
	w.section("NAME")
	w.line(literal(name) + ` \- ` + literal(usage))
	return w
}

func (w *writer) line(text string)    { w.lines = append(w.lines, text) }
func (w *writer) section(name string) { w.line(".SH " + quoted(name)) }

// prose writes text as it comes, line by line.
func (w *writer) prose(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			w.line(literal(line))
		}
	}
}

// paragraph writes a paragraph of text, or nothing.
func (w *writer) paragraph(text string) {
	if text != "" {
		w.line(".PP")
		w.prose(text)
	}
}

// synopsis writes how a command is typed.
func (w *writer) synopsis(v verb) {
	w.line(".B " + literal(v.path))
	if len(v.options) > 0 {
		w.line(`[\fIOPTIONS\fR]`)
	}
	if v.command.ArgsUsage != "" {
		w.line(literal(v.command.ArgsUsage))
	}
}

// options writes the flags of the verbs of a page: those that several verbs share once,
// after the others. It returns the shared ones.
func (w *writer) options(verbs []verb, c *cli.Command) []option {
	help := option{names: []string{"--help", "-h"}, usage: "show help"}
	if len(verbs) == 1 && verbs[0].command == c {
		w.section("OPTIONS")
		for _, o := range append(slices.Clone(verbs[0].options), help) {
			w.option(o)
		}
		return nil
	}
	shared := append(sharedBy(verbs), help)
	w.section("COMMANDS")
	for _, v := range verbs {
		w.line(".SS " + quoted(v.heading()))
		w.prose(sentence(v.command.Usage))
		prose, _ := described(v.command)
		if v.command != c {
			w.paragraph(prose)
		}
		var also []string
		for _, o := range v.options {
			if slices.ContainsFunc(shared, o.same) {
				also = append(also, o.names[0])
				continue
			}
			w.option(o)
		}
		if also != nil {
			w.paragraph("Options that are described below: " + strings.Join(also, ", ") + ".")
		}
	}
	w.section("OPTIONS OF SEVERAL COMMANDS")
	for _, o := range shared {
		w.option(o)
	}
	return shared
}

// option writes one flag.
func (w *writer) option(o option) {
	w.line(".TP")
	var names []string
	for _, name := range o.names {
		name = `\fB` + literal(name) + `\fR`
		if o.value != "" {
			name += ` \fI` + literal(o.value) + `\fR`
		}
		names = append(names, name)
	}
	w.line(strings.Join(names, ", "))
	text := sentence(o.usage)
	if o.standard != "" {
		text += " Default: " + o.standard + "."
	}
	w.prose(text)
}

// examples writes those of all verbs of a page, and its command's own.
func (w *writer) examples(verbs []verb, c *cli.Command) {
	_, all := described(c)
	for _, v := range verbs {
		if v.command != c {
			_, more := described(v.command)
			all = append(all, more...)
		}
	}
	if len(all) == 0 {
		return
	}
	w.section("EXAMPLES")
	w.line(".EX")
	var seen []string
	for _, example := range all {
		if !slices.Contains(seen, example) {
			seen = append(seen, example)
			w.line(code(example))
		}
	}
	w.line(".EE")
}

// exitStatus writes the exit codes of the program.
func (w *writer) exitStatus() {
	w.section("EXIT STATUS")
	for _, code := range []struct{ number, meaning string }{
		{"0", "Done."},
		{"1", "Failed; standard error says why."},
		{"2", "Wrong usage, or a mistake in the settings: nothing was done."},
		{"3", "Refused by the log: the change was understood and not accepted. Of rutter trace: neither yes nor no."},
		{"4", "No server could be reached, or none answered in time."},
		{"130", "Interrupted before it was done."},
	} {
		w.line(".TP")
		w.line(".B " + code.number)
		w.prose(code.meaning)
	}
}

// environment writes the variables of the verbs' flags.
func (w *writer) environment(verbs []verb) {
	flags := map[string][]string{}
	var names []string
	for _, v := range verbs {
		for _, o := range v.options {
			for _, name := range o.variables {
				if flags[name] == nil {
					names = append(names, name)
				}
				if !slices.Contains(flags[name], o.names[0]) {
					flags[name] = append(flags[name], o.names[0])
				}
			}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	w.section("ENVIRONMENT")
	w.paragraph("A flag wins over its variable, which wins over the file of settings.")
	for _, name := range names {
		w.line(".TP")
		w.line(".B " + literal(name))
		w.prose("As " + strings.Join(flags[name], ", ") + ".")
	}
}

// files writes the files and folders that are defaults of the verbs' flags.
func (w *writer) files(verbs []verb, shared []option) {
	all := slices.Clone(shared)
	for _, v := range verbs {
		all = append(all, v.options...)
	}
	var paths []string
	section := false
	add := func(path, text string) {
		if slices.Contains(paths, path) {
			return
		}
		if !section {
			w.section("FILES")
			section = true
		}
		paths = append(paths, path)
		w.file(path, text)
	}
	for _, o := range all {
		if slices.Contains(o.names, "--config") {
			add("/etc/rutter/rutter.toml", "Settings: read if "+o.names[0]+" or its variable names it.")
		}
		if path := o.path(); path != "" {
			add(path, sentence(o.usage)+" Option "+o.names[0]+".")
		}
	}
}

func (w *writer) file(path, text string) {
	w.line(".TP")
	w.line(".I " + literal(path))
	w.prose(text)
}

// seeAlso names the program's page, and those of commands in the same part of its help.
func (w *writer) seeAlso(m manual, c *cli.Command) {
	w.section("SEE ALSO")
	names := []string{program}
	for _, other := range m.commands {
		if other != c && !other.Hidden && other.Category == c.Category && c.Category != "" {
			names = append(names, program+"-"+other.Name)
		}
	}
	w.references(names)
	w.end(m)
}

// end ends a page.
func (w *writer) end(m manual) {
	w.paragraph("Documentation is in " + documents + ".")
	w.section("VERSION")
	w.line(literal(program + " " + m.version))
}

// references writes the names of pages of section 1.
func (w *writer) references(names []string) {
	slices.Sort(names)
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		w.line(".BR " + literal(name) + " (1)" + end)
	}
}

// characters are those that man(7) shows as others unless they are written in its way.
var characters = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// breaks are the places where a line may end in a long word, such as a URL or a list of
// choices.
var breaks = strings.NewReplacer("/", `/\:`, "|", `|\:`, ",", `,\:`, "=", `=\:`)

// code is a line that is shown as it is, of any length.
func code(line string) string {
	line = characters.Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}

// literal is text that is shown as it is, in lines that fit.
func literal(text string) string { return breaks.Replace(code(text)) }

// quoted is text as one argument of a macro.
func quoted(text string) string { return `"` + strings.ReplaceAll(literal(text), `"`, `\(dq`) + `"` }

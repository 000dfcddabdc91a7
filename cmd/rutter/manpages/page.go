package manpages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// program is the name that pages and commands begin with.
const program = "rutter"

// manual is what all pages are made of.
type manual struct {
	version  string
	date     string // as in 2026-11-23, or empty
	commands []*cli.Command
}

// verb is a command that does something, as its page shows it.
type verb struct {
	path    string // as it is typed, with the program's name
	command *cli.Command
	options []option
}

// pages are the texts of all pages by file name: rutter.1 for the program, and one for
// each of its commands with the commands below it.
func (m manual) pages() map[string]string {
	pages := map[string]string{program + ".1": m.overview()}
	for _, c := range m.commands {
		if !c.Hidden {
			pages[program+"-"+c.Name+".1"] = m.page(c)
		}
	}
	return pages
}

// verbsOf are the commands at and below c that do something, in the order of its help.
func verbsOf(path string, c *cli.Command) []verb {
	path += " " + c.Name
	var all []verb
	if len(c.Subcommands) == 0 || c.Action != nil {
		all = append(all, verb{path: path, command: c, options: optionsOf(c.Flags)})
	}
	for _, sub := range c.Subcommands {
		if !sub.Hidden {
			all = append(all, verbsOf(path, sub)...)
		}
	}
	return all
}

// page is that of a command of the program and of all below it.
func (m manual) page(c *cli.Command) string {
	verbs := verbsOf(program, c)
	w := m.begin(program+"-"+c.Name, c.Usage)
	w.section("SYNOPSIS")
	for i, v := range verbs {
		if i > 0 {
			w.line(".br")
		}
		w.synopsis(v)
	}
	w.section("DESCRIPTION")
	prose, _ := described(c)
	w.paragraph(sentence(c.Usage))
	w.paragraph(prose)
	shared := w.options(verbs, c)
	w.examples(verbs, c)
	w.exitStatus()
	w.environment(verbs)
	w.files(verbs, shared)
	w.seeAlso(m, c)
	return strings.Join(w.lines, "\n") + "\n"
}

// overview is the page of the program itself.
func (m manual) overview() string {
	w := m.begin(program, "the change log that a private cloud's network runs on")
	w.section("SYNOPSIS")
	w.line(`.B ` + program)
	w.line(`.I COMMAND`)
	w.line(`[\fIOPTIONS\fR] [\fIARGUMENTS\fR]`)
	w.line(".br")
	w.line(`.B ` + program + ` \-\-version`)
	w.section("DESCRIPTION")
	w.paragraph("Rutter keeps the objects of a private cloud's network (networks, network interfaces, fabrics, compute nodes) in a log that servers agree on by Raft. " +
		"Agents on compute nodes program the kernel's network as the log says. This one program is server, agent and command-line tool.")
	w.paragraph("Each command has a page of its own, and --help with examples. Flags may come before and after arguments; -- ends flags.")
	w.section("COMMANDS")
	sorted := slices.Clone(m.commands)
	slices.SortStableFunc(sorted, func(a, b *cli.Command) int { return cmp.Compare(a.Category, b.Category) })
	category := ""
	for _, c := range sorted {
		if c.Hidden {
			continue
		}
		if c.Category != category {
			category = c.Category
			w.line(".SS " + quoted(category))
		}
		w.line(".TP")
		w.line(`.BR ` + literal(program+"-"+c.Name) + ` (1)`)
		w.prose(sentence(c.Usage))
	}
	w.exitStatus()
	w.section("ENVIRONMENT")
	w.paragraph("A flag wins over its RUTTER_ variable, which wins over the file of settings, which wins over the default. The page of each command has its variables.")
	w.section("FILES")
	w.file("/etc/rutter/rutter.toml", "Settings of all roles of a machine; rutter config check reads them.")
	w.file("/var/lib/rutter", "The log and the state of a server.")
	w.file("/var/lib/rutter-agent", "What the agent of a compute node needs to program the kernel without a server.")
	w.file("/run/rutter", "Sockets of the agent of this node, and pid files of its VMs.")
	w.file(documents, "Documentation; begin with README.md there.")
	w.section("SEE ALSO")
	var names []string
	for _, c := range m.commands {
		if !c.Hidden {
			names = append(names, program+"-"+c.Name)
		}
	}
	w.references(names)
	w.end(m)
	return strings.Join(w.lines, "\n") + "\n"
}

// described splits the description of a command into text and examples, which end with
// an empty line.
func described(c *cli.Command) (prose string, examples []string) {
	before, rest, found := strings.Cut("\n"+c.Description, "\nExamples:\n")
	if !found {
		return strings.TrimSpace(before), nil
	}
	rest, after, _ := strings.Cut(rest, "\n\n")
	for line := range strings.Lines(rest) {
		examples = append(examples, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	return strings.TrimSpace(before + "\n" + after), examples
}

// sentence is a text of help as a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// heading names a verb by what is typed after the program's name.
func (v verb) heading() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", v.path, v.command.ArgsUsage))
}

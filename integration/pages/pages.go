// Package pages reads the pages of docs/ whose commands tests run word for word: fenced
// blocks that say on which machines they run, as in "```sh s1 s2".
package pages

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Step is a block of a page to run, or a loss that the page speaks of.
type Step struct {
	Path    string
	Line    int
	Section string // the heading that it is under
	Hosts   []string
	Script  string
	Lost    bool // the machines of Hosts are killed here, with their disks
}

var lossMark = regexp.MustCompile(`^<!-- test: lose ([a-z0-9 ]+) -->$`)

// Read reads a page's blocks. A block that does not say where it runs is an error, so that
// no command stands in the page that no test runs.
func Read(path string) (all []Step, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var in *Step
	section := ""
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case in != nil && line == "```":
			all = append(all, *in)
			in = nil
		case in != nil:
			in.Script += line + "\n"
		case lossMark.MatchString(line):
			all = append(all, Step{Path: path, Line: i + 1, Section: section, Hosts: strings.Fields(lossMark.FindStringSubmatch(line)[1]), Lost: true})
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(line, "```"):
			words := strings.Fields(strings.TrimPrefix(line, "```"))
			if len(words) < 2 || words[0] != "sh" {
				return nil, fmt.Errorf("%s:%d: a block of commands says on which hosts they run, as in ```sh s1", path, i+1)
			}
			in = &Step{Path: path, Line: i + 1, Section: section, Hosts: words[1:]}
		}
	}
	if in != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", path, in.Line)
	}
	return all, nil
}

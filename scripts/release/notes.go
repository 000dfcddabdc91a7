//go:build release

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// changes are the lines of CHANGELOG.md about this version: the section with its name,
// or the one of what is not released yet. Pre-releases and builds between releases have
// no section of their own.
func changes(o options) (string, error) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return "", err
	}
	for _, name := range []string{o.version, "v" + o.version, "Unreleased"} {
		for _, section := range strings.Split("\n"+string(text), "\n## ")[1:] {
			title, body, _ := strings.Cut(section, "\n")
			if first, _, _ := strings.Cut(strings.TrimSpace(title), " "); strings.Trim(first, "[]") == name {
				return strings.TrimSpace(body) + "\n", nil
			}
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section %q, and none of what is unreleased", "## "+o.version)
}

// writeNotes makes the notes of the release.
func writeNotes(o options) error {
	body, err := changes(o)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "release-notes-"+o.version+".md"), []byte("# Rutter "+o.version+"\n\n"+body), 0o644)
}

// debianChangelog has the changes of this version in the form of Debian's changelogs.
func debianChangelog(o options) ([]byte, error) {
	body, err := changes(o)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rutter (%s) unstable; urgency=medium\n\n", o.version)
	var words []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "- "); ok {
			b.WriteString(changelogItem(words))
			words, line = nil, rest
		}
		words = append(words, strings.Fields(line)...)
	}
	b.WriteString(changelogItem(words))
	fmt.Fprintf(&b, "\n -- %s  %s\n", o.maintainer, o.built.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	return []byte(b.String()), nil
}

// writeSums makes SHA256SUMS of every other file of the folder: sha256sum -c checks it.
func writeSums(o options) error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(o.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries { // sorted by name
		if e.Name() == name {
			continue
		}
		if !strings.Contains(e.Name(), o.version) {
			return errors.New(filepath.Join(o.out, e.Name()) + " is not of version " + o.version + ": make clean, or choose an empty folder")
		}
		data, err := os.ReadFile(filepath.Join(o.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(o.out, name), []byte(b.String()), 0o644)
}

// changelogWidth is how many columns a line of Debian's changelogs has.
const changelogWidth = 80

// changelogItem is one change, in lines of changelogWidth where its words allow it; "" of none.
func changelogItem(words []string) string {
	if len(words) == 0 {
		return ""
	}
	var b strings.Builder
	line := "  *"
	for _, w := range words {
		if len([]rune(line))+1+len([]rune(w)) > changelogWidth && strings.TrimSpace(line) != "*" {
			b.WriteString(line + "\n")
			line = "   "
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
	return b.String()
}

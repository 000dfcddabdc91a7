package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rutter/projections/documents"
)

// Standard is the path that stands for standard input.
const Standard = "-"

// Load reads the documents of paths: files, folders with all below them (sorted; names that
// end in .yaml, .yml or .json), and Standard for stdin. An error that is about what the
// files hold is documents.Problems, with all that is wrong with any of them.
func Load(paths []string, stdin io.Reader) (docs []documents.Document, err error) {
	var problems documents.Problems
	var files int
	read := func(name string, in io.Reader) error {
		if files++; files > MaxFiles {
			return fmt.Errorf("%s: there are more than %d files; apply them in several steps", name, MaxFiles)
		}
		text, err := io.ReadAll(io.LimitReader(in, MaxFileBytes+1))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		some, err := Read(name, text)
		var wrong documents.Problems
		if errors.As(err, &wrong) {
			problems = append(problems, wrong...)
			return nil
		}
		if docs = append(docs, some...); len(docs) > MaxDocuments {
			return fmt.Errorf("%s: there are more than %d documents; apply them in several steps", name, MaxDocuments)
		}
		return err
	}
	for _, path := range paths {
		names, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := open(name, stdin, read); err != nil {
				return nil, err
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return docs, nil
}

// open calls read with the content of a file.
func open(name string, stdin io.Reader, read func(name string, in io.Reader) error) error {
	if name == Standard {
		return read("standard input", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(name, f)
}

// filesOf are the files of a path, sorted.
func filesOf(path string) (names []string, err error) {
	if path == Standard {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != path && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir // a repository's own, such as .git
		case !entry.IsDir() && isDocuments(entry.Name()):
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: no file in it ends in .yaml, .yml or .json", path)
	}
	slices.Sort(names)
	return names, err
}

func isDocuments(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

package applycmd

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/planprint"
	"rutter/cmd/rutter/term"
)

// accepts is what the user accepted by flags.
type accepts struct{ replace, pruneMost bool }

func acceptsOf(c *cli.Context) accepts {
	return accepts{replace: c.Bool("replace"), pruneMost: c.Bool("prune-most")}
}

// maxNamed is how many objects an error names.
const maxNamed = 10

// accepted returns an error if a set is refused by the servers, or does what the user did
// not accept. docs is the number of documents.
func accepted(s *set, docs int, by accepts) error {
	for i := range s.outcome.Changes {
		if refusal := s.outcome.Changes[i].Result.Refusal; refusal != nil {
			return fmt.Errorf("the servers would refuse it: %w", namedRefusal{refusedText(&s.outcome), refusal})
		}
	}
	if len(s.replaced) > 0 && !by.replace {
		var names []string
		for _, step := range s.replaced[:min(len(s.replaced), maxNamed)] {
			names = append(names, fmt.Sprintf("%s %s, because %s cannot be changed", step.Kind, planprint.Called(step.ID, step.Name), strings.Join(step.Because, ", ")))
		}
		if more := len(s.replaced) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		return cli.Exit(fmt.Errorf("%d objects would be deleted and made again: %s; accept it with --replace, or leave the fields as they are", len(s.replaced), strings.Join(names, "; ")), term.ExitRefused)
	}
	if s.prune.Set == "" || s.prune.Deleted == 0 || by.pruneMost {
		return nil
	}
	switch {
	case docs == 0:
		return cli.Exit(fmt.Errorf("there is no document, so that pruning deletes all %d objects of %s: is it the right folder? Accept it with --prune-most", s.prune.Deleted, s.prune.Set), term.ExitRefused)
	case s.prune.most():
		return cli.Exit(fmt.Errorf("pruning deletes %d of the %d objects of %s, more than half: are documents missing? Accept it with --prune-most", s.prune.Deleted, s.prune.All, s.prune.Set), term.ExitRefused)
	}
	return nil
}

// namedRefusal is a refusal with the name of the object that it is about.
type namedRefusal struct {
	text  string
	cause error
}

// Error implements error.
func (e namedRefusal) Error() string { return e.text }

// Unwrap returns the *log.Refusal.
func (e namedRefusal) Unwrap() error { return e.cause }

package term

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// ownVariables are the prefixes of variables that the demo gives to its own inner
// process.
var ownVariables = []string{"RUTTER_NETLAB_", "RUTTER_DEMO_"}

// PassedOn reports whether a variable is one that the demo gives to its own inner
// process.
func PassedOn(variable string) bool {
	return slices.ContainsFunc(ownVariables, func(own string) bool { return strings.HasPrefix(variable, own) })
}

// ForgetVariables removes this machine's settings from the environment, so that
// processes that the program starts for itself do not inherit them.
func ForgetVariables() error {
	var errs []error
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, VariablePrefix) && !PassedOn(name) {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	return errors.Join(errs...)
}

// VariablePrefix is the prefix of the program's environment variables.
const VariablePrefix = "RUTTER_"

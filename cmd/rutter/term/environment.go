package term

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// ownVariables begin the names that the demo gives to its own inner process.
var ownVariables = []string{"RUTTER_NETLAB_", "RUTTER_DEMO_"}

// PassedOn reports whether a variable is one that the demo gives to its own inner
// process.
func PassedOn(variable string) bool {
	return slices.ContainsFunc(ownVariables, func(own string) bool { return strings.HasPrefix(variable, own) })
}

// ForgetVariables keeps the settings of this machine from processes that the
// program starts for itself.
func ForgetVariables() error {
	var errs []error
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, VariablePrefix) && !PassedOn(name) {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	return errors.Join(errs...)
}

// VariablePrefix begins the names of our environment variables.
const VariablePrefix = "RUTTER_"

// Package install has the test that installs Rutter as an operator does: on machines with a
// clean Debian and a real systemd, by the commands of docs/install.md, word for word.
package install

// Package completioncmd has the command rutter completion: what bash, zsh and fish need
// to complete the program's commands and flags.
package completioncmd

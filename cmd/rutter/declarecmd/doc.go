// Package declarecmd has the commands about what people declare: rutter export, which
// writes documents of what there is, and rutter explain, which says what each field of
// each kind of object is.
package declarecmd

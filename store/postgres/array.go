package postgres

import "github.com/jackc/pgx/v5/pgtype"

// Arrays for statements. pgx takes slices as well, and asks by reflection what each
// element is, which costs an allocation each. Here an element is a pointer into the
// slice that says so itself.
type (
	strs  []string
	ints  []int64 // for bigint[] and integer[]
	bools []bool
	blobs [][]byte // nil is NULL
)

type (
	strOf  string
	intOf  int64
	boolOf bool
	blobOf []byte
)

func (v *strOf) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*v), Valid: true}, nil
}
func (v *intOf) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*v), Valid: true}, nil
}
func (v *boolOf) BoolValue() (pgtype.Bool, error) {
	return pgtype.Bool{Bool: bool(*v), Valid: true}, nil
}
func (v *blobOf) BytesValue() ([]byte, error) { return *v, nil }

func (a strs) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }
func (a strs) Index(i int) any                     { return (*strOf)(&a[i]) }
func (a strs) IndexType() any                      { return (*strOf)(nil) }

func (a ints) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }
func (a ints) Index(i int) any                     { return (*intOf)(&a[i]) }
func (a ints) IndexType() any                      { return (*intOf)(nil) }

func (a bools) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }
func (a bools) Index(i int) any                     { return (*boolOf)(&a[i]) }
func (a bools) IndexType() any                      { return (*boolOf)(nil) }

func (a blobs) Dimensions() []pgtype.ArrayDimension { return dimension(len(a)) }
func (a blobs) Index(i int) any                     { return (*blobOf)(&a[i]) }
func (a blobs) IndexType() any                      { return (*blobOf)(nil) }

func dimension(n int) []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

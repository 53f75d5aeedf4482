#include "worker/layers/rotary_tables.h"

#include <vector>

#include "kernels/ops/rope/rope.h"

namespace weft::layers {

void BuildRotaryTables(const model::Shape& shape, float* tables) {
  if (const int64_t elements = shape.attention_table_elements()) {
    const int64_t dim = shape.rotary_dim();
    std::vector<float> frequencies(dim / 2);
    ops::BuildRopeFrequencies(dim, shape.rope_theta, frequencies.data());
    ops::BuildRopeTables(shape.sequence, dim, frequencies.data(), tables,
                         tables + elements / 2);
    tables += elements;
  }
  if (const int64_t elements = shape.mla_table_elements()) {
    const int64_t dim = shape.mla.rope_dim;
    const model::YarnShape& yarn = shape.mla.yarn;
    std::vector<float> frequencies(dim / 2);
    ops::BuildYarnFrequencies(
        dim, shape.rope_theta,
        {yarn.factor, yarn.original_positions, yarn.beta_fast, yarn.beta_slow},
        frequencies.data());
    ops::BuildRopeTables(shape.sequence, dim, frequencies.data(), tables,
                         tables + elements / 2, yarn.rotation_magnitude());
  }
}

Constants RotaryTablesAt(const model::Shape& shape, const float* tables) {
  Constants constants;
  constants.rope_cos = tables;
  constants.rope_sin = tables + shape.attention_table_elements() / 2;
  constants.mla_cos = tables + shape.attention_table_elements();
  constants.mla_sin = constants.mla_cos + shape.mla_table_elements() / 2;
  return constants;
}

}  // namespace weft::layers

// The objective of a whole decoder against the definition of each block,
// computed in double precision, a token at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/layers/testing/double_rows.h"
#include "worker/layers/testing/node_runner.h"

namespace weft::layers {
namespace {

using model::BlockKind;
using testing::Dot;
using testing::MakeShape;
using testing::NodeRunner;
using testing::Part;
using testing::Rows;
using testing::Silu;
using testing::SmallShape;
using testing::Softmax;
using testing::Sum;
using testing::Vec;

// Frequency i of d rotated elements; the formula in job.proto.
double Frequency(const model::Shape& s, const model::YarnShape& yarn, double d,
                 int64_t i) {
  const auto dim = [&](double n) {
    return d * std::log(yarn.original_positions / (2 * M_PI * n)) /
           (2 * std::log(s.rope_theta));
  };
  const double low = std::max(std::floor(dim(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(dim(yarn.beta_slow)), d - 1);
  const double r = std::min(std::max((i - low) / (high - low), 0.0), 1.0);
  const double plain = std::pow(s.rope_theta, -2 * i / d);
  return yarn.factor == 1 ? plain : plain * ((1 - r) + r / yarn.factor);
}

// YaRN's m(c), and what it makes of rotations and of scores.
double Magnitude(const model::YarnShape& yarn, double c) {
  return yarn.factor > 1 ? 0.1 * c * std::log(yarn.factor) + 1 : 1;
}
double RotationMagnitude(const model::YarnShape& yarn) {
  return Magnitude(yarn, yarn.mscale) / Magnitude(yarn, yarn.mscale_all_dim);
}
double LatentScale(const model::Shape& s) {
  if (s.softmax_scale != 0) return s.softmax_scale;
  const double m = Magnitude(s.mla.yarn, s.mla.yarn.mscale_all_dim);
  return m * m / std::sqrt(1.0 * (s.mla.plain_dim + s.mla.rope_dim));
}

class Oracle {
 public:
  Oracle(NodeRunner& runner, const model::Shape& shape)
      : runner_(runner), s_(shape) {}

  double Loss() {
    const std::vector<int32_t> tokens = Ints("embedding.tokens");
    const std::vector<int32_t> labels = Ints("embedding.labels");
    Rows x;
    for (int32_t token : tokens) {
      const Vec row =
          Part(Param("embedding.table"), token * s_.hidden, s_.hidden);
      x.push_back(Sum(Vec(s_.hidden), s_.embedding_multiplier, row));
    }
    const Rows embedded = x;
    for (size_t layer = 0; layer < s_.layers.size(); ++layer) {
      layer_ = absl::StrCat("layers.", layer, ".");
      for (BlockKind block : s_.layers[layer]) Add(block, x);
    }
    layer_ = "";
    Rows state;
    for (const Vec& row : x) state.push_back(Norm("head.norm", row));
    double loss = MeanLoss(state, labels, 0);
    for (int depth = 1; depth <= s_.mtp_depths(); ++depth) {
      state = Further(embedded, state, depth);
      loss +=
          s_.mtp_loss_factor / s_.mtp_depths() * MeanLoss(state, labels, depth);
    }
    return loss;
  }

 private:
  // Of labels `further` positions behind, as far as a sequence has them.
  double MeanLoss(const Rows& state, const std::vector<int32_t>& labels,
                  int further) {
    double loss = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      if (t % s_.sequence + further >= s_.sequence) continue;
      Vec logits = Linear(s_.tie_embeddings ? "embedding.table" : "head.output",
                          state[t]);
      for (double& logit : logits) logit /= s_.logits_divisor;
      loss -= std::log(Softmax(logits)[labels[t + further]]);
      ++count;
    }
    return loss / count;
  }

  // The state of a depth from that of the one before. Past the end of a
  // sequence stands token 0.
  Rows Further(const Rows& embedded, const Rows& state, int depth) {
    const Vec zero = Sum(Vec(s_.hidden), s_.embedding_multiplier,
                         Part(Param("embedding.table"), 0, s_.hidden));
    layer_ = absl::StrCat("mtp.", depth - 1, ".");
    Rows x;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      const bool inside = t % s_.sequence + depth < s_.sequence;
      Vec both = Norm("enorm", inside ? embedded[t + depth] : zero);
      const Vec h = Norm("hnorm", state[t]);
      both.insert(both.end(), h.begin(), h.end());
      x.push_back(Linear("eh_proj", both));
    }
    for (BlockKind block : s_.mtp_layers[depth - 1]) Add(block, x);
    for (Vec& row : x) row = Norm("final_norm", row);
    layer_ = "";
    return x;
  }

  std::vector<int32_t> Ints(const std::string& name) {
    std::vector<int32_t> ints(s_.tokens);
    const auto& values = runner_.model().values;
    for (size_t v = 0; v < values.size(); ++v) {
      if (values[v].name != name) continue;
      std::memcpy(ints.data(), runner_.value(v).data(),
                  ints.size() * sizeof(int32_t));
    }
    return ints;
  }

  Vec Param(const std::string& name) {
    const auto& params = runner_.model().params;
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].name != layer_ + name) continue;
      return Vec(runner_.param(p).begin(), runner_.param(p).end());
    }
    ADD_FAILURE() << "no parameter " << layer_ << name;
    return {};
  }

  static Vec Multiply(const Vec& weight, const Vec& x) {
    Vec y(weight.size() / x.size());
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = Dot(Part(weight, i * x.size(), x.size()), x);
    }
    return y;
  }
  Vec Linear(const std::string& name, const Vec& x) {
    return Multiply(Param(name), x);
  }

  Vec Norm(const std::string& name, const Vec& x) {
    const Vec weight = Param(name);
    const double mean = Dot(x, x) / x.size();
    Vec y = x;
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] *= weight[i] / std::sqrt(mean + s_.norm_epsilon);
    }
    return y;
  }

  void Add(BlockKind block, Rows& x) {
    Rows branch;
    if (block == BlockKind::kAttention) branch = Attention(x);
    if (block == BlockKind::kMla) branch = Latent(x);
    if (block == BlockKind::kMamba) branch = Mixer(x);
    if (block == BlockKind::kMlp) {
      for (const Vec& row : x) {
        branch.push_back(FeedForward(Param("mlp.gate_up"), Param("mlp.down"),
                                     Norm("norm2", row)));
      }
    }
    if (block == BlockKind::kExperts) {
      for (const Vec& row : x) branch.push_back(Experts(Norm("norm2", row)));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      x[t] = Sum(x[t], s_.residual_multiplier, branch[t]);
    }
  }

  static Vec FeedForward(const Vec& up, const Vec& down, const Vec& x) {
    const Vec both = Multiply(up, x);
    Vec act(both.size() / 2);
    for (size_t i = 0; i < act.size(); ++i) {
      act[i] = both[i] / (1 + std::exp(-both[i])) * both[act.size() + i];
    }
    return Multiply(down, act);
  }

  Vec Experts(const Vec& x) {
    const Vec scores = Softmax(Linear("router", x));
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    order.resize(s_.top_k);
    double sum = 0;
    for (int64_t e : order) sum += scores[e];
    const Vec up = Param("experts.gate_up");
    const Vec down = Param("experts.down");
    const int64_t up_size = up.size() / s_.experts;
    const int64_t down_size = down.size() / s_.experts;
    Vec y = s_.shared_ffn > 0
                ? FeedForward(Param("shared_gate_up"), Param("shared_down"), x)
                : Vec(s_.hidden);
    for (int64_t e : order) {
      y = Sum(y, scores[e] / (s_.renormalize_top_k ? sum : 1),
              FeedForward(Part(up, e * up_size, up_size),
                          Part(down, e * down_size, down_size), x));
    }
    return y;
  }

  // Rotates the pairs (x[i], x[i + d/2]) of the first `d` elements.
  Vec Rotated(Vec x, int64_t d, const model::YarnShape& yarn, int64_t token) {
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle = token % s_.sequence * Frequency(s_, yarn, d, i);
      const double m = RotationMagnitude(yarn);
      const double a = x[i];
      const double b = x[i + d / 2];
      x[i] = m * (a * std::cos(angle) - b * std::sin(angle));
      x[i + d / 2] = m * (b * std::cos(angle) + a * std::sin(angle));
    }
    return x;
  }

  // Causal attention of one head.
  Rows Head(const Rows& q, const Rows& k, const Rows& v, double scale) {
    Rows out;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      const int64_t first = t - t % s_.sequence;
      Vec scores;
      for (int64_t u = first; u <= t; ++u) {
        scores.push_back(scale * Dot(q[t], k[u]));
      }
      const Vec p = Softmax(scores);
      Vec sum(v[t].size());
      for (int64_t u = first; u <= t; ++u) sum = Sum(sum, p[u - first], v[u]);
      out.push_back(sum);
    }
    return out;
  }

  // out_proj of heads side by side.
  Rows Project(const std::vector<Rows>& heads) {
    Rows y;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      Vec row;
      for (const Rows& head : heads) {
        row.insert(row.end(), head[t].begin(), head[t].end());
      }
      y.push_back(Linear("out", row));
    }
    return y;
  }

  Rows Attention(const Rows& x) {
    const int64_t d = s_.head_dim;
    std::vector<Rows> heads;
    for (int64_t head = 0; head < s_.heads; ++head) {
      const int64_t group = head / (s_.heads / s_.kv_heads);
      Rows q, k, v;
      for (int64_t t = 0; t < s_.tokens; ++t) {
        const Vec qkv = Linear("qkv", Norm("norm1", x[t]));
        const auto at = [&](int64_t index) { return Part(qkv, index * d, d); };
        q.push_back(Rotated(at(head), s_.rotary_dim(), {}, t));
        k.push_back(Rotated(at(s_.heads + group), s_.rotary_dim(), {}, t));
        v.push_back(at(s_.heads + s_.kv_heads + group));
      }
      heads.push_back(Head(q, k, v, s_.attention_scale()));
    }
    return Project(heads);
  }

  // [plain, rope] with the rope rotated.
  Vec WithRotated(const Vec& plain, const Vec& rope, int64_t token) {
    Vec split = rope;
    const int64_t half = rope.size() / 2;
    for (size_t i = 0; i < rope.size() && !s_.mla.half_split; ++i) {
      split[i / 2 + i % 2 * half] = rope[i];
    }
    const Vec rotated = Rotated(split, rope.size(), s_.mla.yarn, token);
    Vec row = plain;
    row.insert(row.end(), rotated.begin(), rotated.end());
    return row;
  }

  Rows Latent(const Rows& x) {
    const model::MlaShape& m = s_.mla;
    std::vector<Rows> heads;
    for (int64_t head = 0; head < s_.heads; ++head) {
      Rows q, k, v;
      for (int64_t t = 0; t < s_.tokens; ++t) {
        const Vec xn = Norm("norm1", x[t]);
        const Vec all_q =
            m.q_rank > 0 ? Linear("q_up", Norm("q_norm", Linear("q_down", xn)))
                         : Linear("q_proj", xn);
        const Vec down = Linear("kv_down", xn);
        const Vec kv =
            Linear("kv_up", Norm("kv_norm", Part(down, 0, m.kv_rank)));
        const int64_t q_at = head * (m.plain_dim + m.rope_dim);
        const int64_t kv_at = head * (m.plain_dim + m.v_dim);
        q.push_back(WithRotated(Part(all_q, q_at, m.plain_dim),
                                Part(all_q, q_at + m.plain_dim, m.rope_dim),
                                t));
        k.push_back(WithRotated(Part(kv, kv_at, m.plain_dim),
                                Part(down, m.kv_rank, m.rope_dim), t));
        v.push_back(Part(kv, kv_at + m.plain_dim, m.v_dim));
      }
      heads.push_back(Head(q, k, v, LatentScale(s_)));
    }
    return Project(heads);
  }

  Vec Biased(const std::string& name, const Vec& x) {
    const Vec y = Linear(name, x);
    return s_.mamba.projection_bias ? Sum(y, 1, Param(name + "_bias")) : y;
  }

  // SiLU of the causal convolution of what lies behind z in projected rows.
  Rows Convolved(const Rows& projected) {
    const model::MambaShape& m = s_.mamba;
    const Vec weight = Param("conv_weight");
    const Vec bias = m.conv_bias ? Param("conv_bias") : Vec(m.conv_columns());
    Rows rows;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      Vec row = bias;
      for (int64_t back = 0; back < m.conv_width && back <= t % s_.sequence;
           ++back) {
        for (int64_t c = 0; c < m.conv_columns(); ++c) {
          row[c] += weight[(c + 1) * m.conv_width - 1 - back] *
                    projected[t - back][m.inner() + c];
        }
      }
      for (double& value : row) value = Silu(value);
      rows.push_back(row);
    }
    return rows;
  }

  // The recurrence of one head over all tokens; adds to columns of `y`.
  void Scan(const Rows& projected, const Rows& conv, int64_t head, Rows& y) {
    const model::MambaShape& m = s_.mamba;
    const double a = -std::exp(Param("A_log")[head]);
    const double bias = Param("dt_bias")[head];
    const double skip = Param("D")[head];
    const int64_t group = head / (m.heads / m.groups);
    Rows state;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      if (t % s_.sequence == 0) state.assign(m.head_dim, Vec(m.state_size));
      const double raw =
          projected[t][m.inner() + m.conv_columns() + head] + bias;
      double dt = std::max(std::log1p(std::exp(raw)), m.dt_min);
      if (m.dt_max > 0) dt = std::min(dt, m.dt_max);
      const Vec x = Part(conv[t], head * m.head_dim, m.head_dim);
      const Vec b =
          Part(conv[t], m.inner() + group * m.state_size, m.state_size);
      const Vec c = Part(conv[t], m.inner() + (m.groups + group) * m.state_size,
                         m.state_size);
      for (int64_t p = 0; p < m.head_dim; ++p) {
        for (double& element : state[p]) element *= std::exp(dt * a);
        state[p] = Sum(state[p], dt * x[p], b);
        y[t][head * m.head_dim + p] = Dot(state[p], c) + skip * x[p];
      }
    }
  }

  Vec GatedNorm(const Vec& y, const Vec& z) {
    const Vec weight = Param("gated_norm");
    const int64_t width = y.size() / (s_.mamba.one_norm ? 1 : s_.mamba.groups);
    Vec out(y.size());
    for (size_t i = 0; i < y.size(); ++i) out[i] = y[i] * Silu(z[i]);
    for (size_t first = 0; first < y.size(); first += width) {
      const Vec of_group = Part(out, first, width);
      const double mean = Dot(of_group, of_group) / width;
      for (int64_t i = 0; i < width; ++i) {
        out[first + i] *= weight[first + i] / std::sqrt(mean + s_.norm_epsilon);
      }
    }
    return out;
  }

  Rows Mixer(const Rows& x) {
    Rows projected;
    for (const Vec& row : x) {
      projected.push_back(Biased("in_proj", Norm("norm", row)));
    }
    const Rows conv = Convolved(projected);
    Rows y(x.size(), Vec(s_.mamba.inner()));
    for (int64_t head = 0; head < s_.mamba.heads; ++head) {
      Scan(projected, conv, head, y);
    }
    for (size_t t = 0; t < x.size(); ++t) {
      y[t] = Biased("out_proj", GatedNorm(y[t], projected[t]));
    }
    return y;
  }

  NodeRunner& runner_;
  const model::Shape& s_;
  std::string layer_;
};

class DecoderOracleTest : public ::testing::TestWithParam<SmallShape> {};

TEST_P(DecoderOracleTest, ObjectiveIsThatOfTheDefinition) {
  const model::Shape shape = MakeShape(GetParam());
  NodeRunner runner(shape);
  ASSERT_OK(runner.Forward());
  const double expected = Oracle(runner, shape).Loss();
  EXPECT_NEAR(runner.objective() / expected, 1, 5e-6);
}

// Each number is rounded to 2^-9 at most, a few dozen times on the way.
TEST_P(DecoderOracleTest, InBf16ItIsNear) {
  SmallShape narrow = GetParam();
  narrow.bf16 = true;
  const model::Shape shape = MakeShape(narrow);
  NodeRunner runner(shape);
  ASSERT_OK(runner.Forward());
  const double expected = Oracle(runner, shape).Loss();
  EXPECT_NEAR(runner.objective() / expected, 1, 0.02);
}

SmallShape Make(bool moe, bool scaled) {
  SmallShape shape;
  shape.moe = moe;
  shape.layers = 2;
  shape.shared_ffn = moe ? 6 : 0;
  shape.scaled = scaled;
  return shape;
}

SmallShape Rope(SmallShape shape, bool rope, double fraction) {
  shape.rope = rope;
  shape.rotary_fraction = fraction;
  return shape;
}

SmallShape Latent(SmallShape shape, bool q_latent, bool half_split, bool yarn) {
  shape.mla = true;
  shape.q_latent = q_latent;
  shape.half_split = half_split;
  shape.yarn = yarn;
  return shape;
}

SmallShape Mixers(SmallShape shape, bool options) {
  shape.mamba = true;
  shape.mamba_options = options;
  return shape;
}

SmallShape Mtp(SmallShape shape, int depths) {
  shape.mtp_depths = depths;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DecoderOracleTest,
    ::testing::Values(Make(false, false), Make(true, false), Make(false, true),
                      Make(true, true), Rope(Make(false, false), false, 1),
                      Rope(Make(false, true), true, 1.0 / 3),
                      Latent(Make(false, false), false, false, false),
                      Latent(Make(false, false), true, true, false),
                      Latent(Make(false, false), false, false, true),
                      Latent(Make(true, true), true, false, true),
                      Latent(Make(false, true), false, true, true),
                      Mixers(Make(false, false), false),
                      Mixers(Make(true, true), true),
                      Mtp(Make(false, false), 1), Mtp(Make(true, false), 2),
                      Mtp(Latent(Make(false, true), false, false, false), 2)),
    [](const ::testing::TestParamInfo<SmallShape>& info) {
      return absl::StrCat(
          info.param.moe ? "Moe" : "Dense", info.param.scaled ? "Scaled" : "",
          info.param.rope ? "" : "NoRope",
          info.param.rotary_fraction < 1 ? "Fraction" : "",
          !info.param.mamba          ? ""
          : info.param.mamba_options ? "MixerOptions"
                                     : "Mixer",
          info.param.mla ? "Latent" : "", info.param.q_latent ? "Queries" : "",
          info.param.half_split ? "HalfSplit" : "",
          info.param.yarn ? "Yarn" : "",
          info.param.mtp_depths > 0 ? "Mtp" : "");
    });

}  // namespace
}  // namespace weft::layers

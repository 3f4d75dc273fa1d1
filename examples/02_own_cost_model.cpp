/// Plans with a cost model of one's own: any type with the members of `cost_model`.
///
/// The toy here knows a time for each token and a memory for each token, as one would measure them. It says nothing
/// about real hardware.

#include <vector>

#include <fmt/format.h>

#include <dynapipe/dynapipe.hpp>

using namespace dynapipe;

namespace {

struct measured_cost {
  nanoseconds per_token{2'000};
  bytes kept_per_token{300'000};

  static std::int64_t tokens_of(layer_kind kind, const shape& s) {
    return s.rows * (kind == layer_kind::cross_decoder ? s.target : s.input);
  }
  nanoseconds forward(layer_kind kind, const shape& s, recompute_mode) const { return tokens_of(kind, s) * per_token; }
  nanoseconds backward(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return forward(kind, s, recompute) * (recompute == recompute_mode::full ? 3 : 2);
  }
  bytes stored(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return tokens_of(kind, s) * kept_per_token / (recompute == recompute_mode::full ? 17 : 1);
  }
  bytes forward_peak(layer_kind kind, const shape& s, recompute_mode) const {
    return tokens_of(kind, s) * kept_per_token;
  }
  bytes backward_peak(layer_kind kind, const shape& s, recompute_mode) const {
    return tokens_of(kind, s) * kept_per_token;
  }
  bytes state(layer_kind) const { return gib(2); }
};
static_assert(cost_model<measured_cost>);

}  // namespace

int main() {
  const model_spec model = presets::llama_2_7b();
  const cluster_spec cluster = presets::a100_80g();
  const std::vector<sample> batch{{512, 20}, {2'000, 100}, {64, 4}, {3'000, 9}, {700, 50}, {120, 11}};
  for (const recompute_mode recompute : {recompute_mode::none, recompute_mode::full}) {
    const planner plan_batch{model, cluster, measured_cost{}, {.pipeline = 8, .recompute = recompute}};
    const plan p = plan_batch(batch);
    fmt::print("recompute {}: {:.1f} ms, {:.1f} GiB on the first device\n", to_string(recompute),
               static_cast<double>(p.predicted.value()) / 1e6,
               static_cast<double>(p.replicas[0].devices[0].peak.value()) / static_cast<double>(gib(1).value()));
  }
}

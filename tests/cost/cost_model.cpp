#include <cstdint>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cost_model.hpp>

using namespace dynapipe;

namespace {

struct model_of_one_row {
  nanoseconds forward(layer_kind, const shape& s, recompute_mode) const { return nanoseconds{s.rows}; }
  nanoseconds backward(layer_kind, const shape& s, recompute_mode) const { return nanoseconds{s.rows}; }
  bytes stored(layer_kind, const shape& s, recompute_mode) const { return bytes{s.input}; }
  bytes forward_peak(layer_kind, const shape& s, recompute_mode) const { return bytes{s.input}; }
  bytes backward_peak(layer_kind, const shape&, recompute_mode) const { return bytes{0}; }
  bytes state(layer_kind) const { return bytes{1}; }
};
struct stateless : model_of_one_row {
  bytes state(layer_kind) const = delete;
};
struct of_plain_numbers : model_of_one_row {
  std::int64_t forward(layer_kind, const shape& s, recompute_mode) const { return s.rows; }
};
struct not_const : model_of_one_row {
  bytes stored(layer_kind, const shape& s, recompute_mode) { return bytes{s.input}; }
};

static_assert(cost_model<model_of_one_row>);
static_assert(cost_model<analytic_cost>);
static_assert(!cost_model<stateless>);
static_assert(!cost_model<of_plain_numbers>);
static_assert(!cost_model<not_const>);
static_assert(!cost_model<int>);

}  // namespace

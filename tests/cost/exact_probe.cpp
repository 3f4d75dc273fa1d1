/// Prints a digest of many costs for each preset, and for curves and tables that are drawn. `same_numbers.py` compiles
/// it under different flags: the output must not depend on them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/table.hpp>
#include <dynapipe/cost/transfer.hpp>

using namespace dynapipe;

namespace {

struct digest {
  std::uint64_t state = 14'695'981'039'346'656'037U;
  void add(std::int64_t value) { state = (state ^ static_cast<std::uint64_t>(value)) * 1'099'511'628'211U; }
};

template <class Cost, class Shape>
void add_costs(digest& sum, const Cost& cost, const Shape& s) {
  for (int k = 0; k < 5; ++k) {
    const auto kind = static_cast<layer_kind>(k);
    sum.add(cost.state(kind).value());
    for (int m = 0; m < 3; ++m) {
      const auto mode = static_cast<recompute_mode>(m);
      sum.add(cost.forward(kind, s, mode).value());
      sum.add(cost.backward(kind, s, mode).value());
      sum.add(cost.backward_input(kind, s, mode).value());
      sum.add(cost.backward_weight(kind, s, mode).value());
      sum.add(cost.stored(kind, s, mode).value());
      sum.add(cost.weight_stored(kind, s, mode).value());
      sum.add(cost.forward_peak(kind, s, mode).value());
      sum.add(cost.backward_peak(kind, s, mode).value());
    }
  }
}

/// A reproducible number in 0..below - 1.
std::int64_t drawn(std::uint64_t& state, std::int64_t below) {
  state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
  return static_cast<std::int64_t>(state >> 33) % below;
}

/// Curves of every kind, recomputation and amount.
fitted_costs drawn_costs(std::uint64_t& state, bool cubic) {
  fitted_costs costs;
  costs.device = "probe";
  costs.parameters.fill(bytes{402'653'184});
  const auto term = [&state](std::int64_t most) { return drawn(state, most << 16) << (curve_shift - 16); };
  for (auto& modes : costs.layers)
    for (fitted_layer& layer : modes)
      for (fitted_curve& fitted : layer.amounts)
        fitted = {true,
                  {.floor = drawn(state, 200'000),
                   .constant = drawn(state, 100'000),
                   .queries = term(300),
                   .keys = term(100),
                   .self_pairs = term(1) + 12'345,
                   .cross_pairs = term(1) + 54'321,
                   .self_cubes = cubic ? drawn(state, 1'000'000) : 0,
                   .cross_cubes = cubic ? drawn(state, 1'000'000) : 0},
                  {}};
  return costs;
}

/// Points within a quarter of the curves, some missing and some out of memory.
profile drawn_profile(std::uint64_t& state, const fitted_cost& fit) {
  profile p;
  p.device = "probe";
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (std::int64_t rows = 1; rows <= 27; rows *= 3)
      for (std::int64_t input = 40; input <= 5'000; input = input * 2 + 7)
        for (const std::int64_t target : {std::int64_t{16}, std::int64_t{99}, input / 2}) {
          if (kind != layer_kind::cross_decoder && target != 16) continue;
          profile_point point{.kind = kind, .padded = {rows, input, kind == layer_kind::cross_decoder ? target : 0}};
          point.out_of_memory = rows * (input + target) > 60'000;
          detail::profile_amounts amounts{};
          for (const auto& [amount, name] : cost_amount_names)
            if (!point.out_of_memory)
              amounts[static_cast<std::size_t>(amount)] =
                  1 + fit.value(amount, kind, point.padded, recompute_mode::none) / 1'000 * (750 + drawn(state, 500));
          amounts[2] = std::min(amounts[1], amounts[2]);
          amounts[4] = std::min(amounts[3], amounts[4]);
          amounts[5] = std::max(amounts[3], amounts[5]);
          detail::set_amounts(point, amounts);
          if (point.out_of_memory || drawn(state, 8) > 0) p.points.push_back(point);
        }
  return p;
}

void print_measured_models() {
  std::uint64_t state = 1;
  for (int round = 0; round < 12; ++round) {
    const bool cubic = round % 3 == 2;
    const fitted_cost fit{drawn_costs(state, cubic)};
    digest fitted;
    varlen_shape packed;
    for (std::int64_t input = 8; input < 1'000'000'000; input = input * 5 + 8) {
      packed = with_sample(packed, input, input / 3);
      add_costs(fitted, fit, packed);
    }
    for (std::int64_t rows = 1; rows < 200; rows = rows * 3 + 1)
      for (std::int64_t input = 8; input < 3'000'000'000; input = input * 5 + 8)
        for (const std::int64_t target : {std::int64_t{0}, std::int64_t{8}, input})
          add_costs(fitted, fit, shape{rows, input, target});

    const profile measured = drawn_profile(state, fit);
    digest tabled;
    for (const bool monotone : {true, false})
      for (const outside_policy outside : {outside_policy::error, outside_policy::fitted}) {
        const table_cost table{measured, fit, {.outside = outside, .monotone = monotone}};
        tabled.add(static_cast<std::int64_t>(table.holes().size()));
        tabled.add(static_cast<std::int64_t>(table.spikes().size()));
        for (std::int64_t rows = 1; rows < 40; rows += 3)
          for (std::int64_t input = 20; input < 9'000; input += 7 + input / 5)
            for (const std::int64_t target : {std::int64_t{0}, std::int64_t{33}, input / 2})
              add_costs(tabled, table, shape{rows, input, target});
      }
    std::printf("curves %d %016llx\ntable %d %016llx\n", round, static_cast<unsigned long long>(fitted.state), round,
                static_cast<unsigned long long>(tabled.state));
  }
}

}  // namespace

int main() {
  print_measured_models();
  for (cluster_spec cluster : presets::clusters())
    for (const double efficiency : {0.55, 0.1, 0.333333333333333315, 0.9999994999999999}) {
      cluster.efficiency = efficiency;
      for (model_spec model : presets::models())
        for (const attention_kernel kernel : {attention_kernel::fused, attention_kernel::unfused}) {
          model.kernel = kernel;
          digest sum;
          for (const std::int64_t tensor : {1, 2, 4}) {
            const analytic_cost cost{model, cluster, {.tensor_parallel = tensor, .sequence_parallel = tensor == 4}};
            varlen_shape packed;
            for (std::int64_t input = 8; input < 1'000'000'000; input = input * 5 + 8) {
              packed = with_sample(packed, input, input / 3, skipped_window(model));
              add_costs(sum, cost, packed);
            }
            for (std::int64_t rows = 1; rows < 200; rows = rows * 3 + 1)
              for (std::int64_t input = 8; input < 3'000'000'000; input = input * 5 + 8)
                for (const std::int64_t target : {std::int64_t{0}, std::int64_t{8}, std::int64_t{1'000}, input})
                  add_costs(sum, cost, shape{rows, input, target});
          }
          for (std::int64_t size = 1; size < (std::int64_t{1} << 40); size = size * 7 + 3) {
            sum.add(transfer_time(cluster.intra_node, bytes{size}, 3).value());
            sum.add(transfer_time(cluster.inter_node, bytes{size}, 3).value());
            for (const double slowdown : {1.0, 1.1, 1.3335000000000001, 2.7182818284590451}) {
              cluster.inter_node.overlap_slowdown = slowdown;
              sum.add(boundary_time(cluster.inter_node, bytes{size}, {.ranks = 3}).value());
            }
          }
          std::printf("%s %.6f %s %d %016llx\n", cluster.name.c_str(), efficiency, model.name.c_str(),
                      static_cast<int>(kernel), static_cast<unsigned long long>(sum.state));
        }
    }
}

/// Prints a digest of many costs for each preset. `same_numbers.py` compiles it under different flags: the output must
/// not depend on them.

#include <cstdint>
#include <cstdio>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/model.hpp>

using namespace dynapipe;

namespace {

struct digest {
  std::uint64_t state = 14'695'981'039'346'656'037U;
  void add(std::int64_t value) { state = (state ^ static_cast<std::uint64_t>(value)) * 1'099'511'628'211U; }
};

void add_costs(digest& sum, const analytic_cost& cost, const shape& s) {
  for (int k = 0; k < 5; ++k) {
    const auto kind = static_cast<layer_kind>(k);
    sum.add(cost.state(kind).value());
    for (int m = 0; m < 3; ++m) {
      const auto mode = static_cast<recompute_mode>(m);
      sum.add(cost.forward(kind, s, mode).value());
      sum.add(cost.backward(kind, s, mode).value());
      sum.add(cost.stored(kind, s, mode).value());
      sum.add(cost.forward_peak(kind, s, mode).value());
      sum.add(cost.backward_peak(kind, s, mode).value());
    }
  }
}

}  // namespace

int main() {
  for (cluster_spec cluster : presets::clusters())
    for (const double efficiency : {0.55, 0.1, 0.333333333333333315, 0.9999994999999999}) {
      cluster.efficiency = efficiency;
      for (model_spec model : presets::models())
        for (const attention_kernel kernel : {attention_kernel::fused, attention_kernel::unfused}) {
          model.kernel = kernel;
          digest sum;
          for (const std::int64_t tensor : {1, 2, 4}) {
            const analytic_cost cost{model, cluster, {.tensor_parallel = tensor}};
            for (std::int64_t rows = 1; rows < 200; rows = rows * 3 + 1)
              for (std::int64_t input = 8; input < 3'000'000'000; input = input * 5 + 8)
                for (const std::int64_t target : {std::int64_t{0}, std::int64_t{8}, std::int64_t{1'000}, input})
                  add_costs(sum, cost, {rows, input, target});
          }
          for (std::int64_t size = 1; size < (std::int64_t{1} << 40); size = size * 7 + 3) {
            sum.add(transfer_time(cluster.intra_node, bytes{size}, 3).value());
            sum.add(transfer_time(cluster.inter_node, bytes{size}, 3).value());
          }
          std::printf("%s %.6f %s %d %016llx\n", cluster.name.c_str(), efficiency, model.name.c_str(),
                      static_cast<int>(kernel), static_cast<unsigned long long>(sum.state));
        }
    }
}

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>
#include <dynapipe/plan/sync.hpp>

#include "tiny.hpp"

using namespace dynapipe;

TEST_CASE("sync_overhang: one replica of one device has nothing to synchronise") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const pipeline_costs costs{model, cluster, analytic_cost{model, cluster}, planner_options{}};
  CHECK(sync_overhang(costs, {{nanoseconds{500}}}, nanoseconds{500}) == nanoseconds{0});
}

TEST_CASE("sync_overhang: a ring over two replicas of one node, by hand") {
  model_spec model = test::tiny_gpt();
  model.tied_head = false;
  const cluster_spec cluster = test::tiny_cluster();
  const pipeline_costs costs{model, cluster, analytic_cost{model, cluster}, {.pipeline = 2, .data = 2}};
  // Device 1 holds four layers and the head, 2 bytes a gradient; two messages of half of them at 100 bits a ns, with
  // four ranks of the node on links of their own.
  const std::int64_t gradients = 2 * (4 * parameters(model, layer_kind::decoder) + parameters(model, layer_kind::head));
  const nanoseconds ring = 2 * transfer_time(cluster.intra_node, bytes{gradients / 2});
  const nanoseconds end{10'000'000};
  CHECK(sync_overhang(costs, {{nanoseconds{0}}, {end, end - nanoseconds{5}}}, end) == ring);
  // What the pipeline of the other devices hides does not count.
  CHECK(sync_overhang(costs, {{nanoseconds{0}}, {end}}, end + ring) == nanoseconds{0});
  CHECK(sync_overhang(costs, {{nanoseconds{0}}, {end}}, end + ring - nanoseconds{3}) == nanoseconds{3});
}

TEST_CASE("sync_overhang: a tied head apart from its embedding adds an exchange of the matrix") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const pipeline_costs costs{model, cluster, analytic_cost{model, cluster}, {.pipeline = 2}};
  const bytes half{model.vocabulary * model.hidden * 2 / 2};
  CHECK(sync_overhang(costs, {{nanoseconds{900}}, {nanoseconds{700}}}, nanoseconds{900}) ==
        2 * transfer_time(cluster.intra_node, half));
}
